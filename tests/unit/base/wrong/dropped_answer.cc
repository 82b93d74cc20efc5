[[nodiscard]] bool Send();

void Run() {
#ifdef HILBERT_RING_WRONG
  Send();
#else
  static_cast<void>(Send());
#endif
}
