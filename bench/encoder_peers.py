#!/usr/bin/env python3
"""A slide through an encoder of the published size, by the engine and by PyTorch.

    encoder_peers.py --encoder-case build/engine/bench/encoder_case [--tiles N] [--compute TYPE]
        [--service build/release/bin [--service-workers 1,2]]

All have the same weights, tiles and threads. Each round runs each of them once; the best round counts. The weights are
random: this measures speed, memory and fidelity. PyTorch computes the same encoder with its own attention (the flash
operator that returns log-sum-exps, called for each branch and offset), in bfloat16 by autocast. The service computes a
vector from .npy files by `hilbert-ring encode`, with each number of workers. Its seconds are that program's. Its memory
is that of all processes together; shared pages count once. `./dev bench encoder` makes the environment.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from published_encoder import SIZES, config_of


def random_weights(config):
    width, ffn, generator = config["embed_dim"], config["ffn_dim"], torch.Generator().manual_seed(1)
    weights = {}

    def normal(shape, scale):
        return torch.randn(shape, generator=generator) * scale

    def linear(name, out, into):
        weights[name + ".weight"] = normal((out, into), into ** -0.5)
        weights[name + ".bias"] = normal((out,), 0.1)

    def norm(name, dim):
        weights[name + ".weight"] = 1 + normal((dim,), 0.1)
        weights[name + ".bias"] = normal((dim,), 0.1)

    linear("patch_embed.proj", width, config["input_dim"])
    weights["cls_token"] = normal((1, 1, width), 1)
    for i in range(config["layers"]):
        layer = f"encoder.layers.{i}."
        for projection in ("q", "k", "v", "out"):
            linear(f"{layer}self_attn.{projection}_proj", width, width)
        norm(layer + "self_attn.inner_attn_ln", width)
        norm(layer + "self_attn_layer_norm", width)
        norm(layer + "final_layer_norm", width)
        linear(layer + "ffn.fc1", ffn, width)
        norm(layer + "ffn.ffn_layernorm", ffn)
        linear(layer + "ffn.fc2", width, ffn)
    norm("encoder.layer_norm", width)
    norm("norm", width)
    return weights


def write_model(folder, config, weights):
    (folder / "config.json").write_text(json.dumps(config))
    header, first = {}, 0
    for name, tensor in weights.items():
        end = first + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [first, end]}
        first = end
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in weights.values():
            file.write(tensor.contiguous().numpy().tobytes())


class Engine:
    """The engine in its own process."""

    def __init__(self, options, folder, compute):
        self.folder = folder
        self.process = subprocess.Popen(
            [options.encoder_case, folder, folder / "tiles", folder / "coords", compute,
             str(options.threads), str(options.ranks)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = f"Hilbert Ring ({self.process.stdout.readline().strip()})"

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def run(self):
        return tuple(map(float, self.ask("run").split()))

    def peak(self):
        return float(self.ask("peak"))

    def figures(self):
        words = self.ask("figures").split()
        return dict(zip(words[::2], map(float, words[1::2])))

    def out(self):
        self.ask(f"write {self.folder / 'out'}")
        return torch.from_numpy(np.fromfile(self.folder / "out", np.float32))

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def processor_seconds(process):
    """Returns the CPU seconds of a running process and its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def proportional_bytes(process):
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:  # the process has ended
        pass
    return 0


class Service:
    """A coordinator and its workers on this host, each with its share of the threads."""

    def __init__(self, options, folder, workers):
        self.options, self.folder, self.most_bytes = options, folder, 0
        self.name = f"Service, {workers} worker{'s' if workers > 1 else ''}"
        self.report, self.vector = folder / f"report{workers}.json", folder / f"service{workers}.npy"
        threads = max(1, options.threads // workers)
        ready = folder / f"ready{workers}.json"
        self.process = subprocess.Popen(
            [options.service / "hilbert-ring-coordinator", f"--spawn-workers={workers}",
             f"--worker-threads={threads}", f"--job-workers={workers}", f"--model-dir={folder / 'models'}",
             f"--ready-file={ready}", "--grpc-port=0", "--http-port=0", "--membership-port=0",
             "--log-level=warn"])
        while not ready.exists():
            if self.process.poll() is not None:
                raise RuntimeError("the service has not started")
            time.sleep(0.05)
        started = json.loads(ready.read_text())
        self.address = f"127.0.0.1:{started['grpc_port']}"

    def processes(self):
        """Returns the process ids of the coordinator and its workers."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [self.process.pid, *(int(child) for task in children
                                    for child in task.read_text().split())]

    def run(self):
        before = sum(map(processor_seconds, self.processes()))
        start = time.perf_counter()
        command = [self.options.service / "hilbert-ring", "encode", "--server", self.address,
                   "--model", "model", "--tiles", self.folder / "tiles.npy", "--coords",
                   self.folder / "coords.npy", "--out", self.vector, "--pool", "mean",
                   "--compute", self.options.compute, "--report", self.report]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as client:
            while client.poll() is None:
                self.most_bytes = max(self.most_bytes, sum(map(
                    proportional_bytes, [client.pid, *self.processes()])))
                time.sleep(0.1)
        wall = time.perf_counter() - start
        if client.returncode != 0:
            raise RuntimeError("the job has failed")
        return wall, sum(map(processor_seconds, self.processes())) - before

    def figures(self):
        """Returns the taken and the planned bytes of each worker."""
        workers = json.loads(self.report.read_text())["workers"]
        return [(int(worker["memory_peak_bytes"]), int(worker["memory_predicted_bytes"]))
                for worker in workers]

    def out(self):
        return torch.from_numpy(np.load(self.vector))[0]

    def close(self):
        self.process.terminate()
        self.process.wait(60)


class Torch:
    name = "PyTorch"

    def __init__(self, config, weights, tiles, coords, compute):
        self.encoder, self.tiles = torch_encoder.TorchEncoder(config, weights), tiles
        self.autocast = compute == "bfloat16"
        self.positions = self.encoder.positions(coords)  # untimed: they depend on the tiles alone

    def run(self):
        start, before = time.perf_counter(), time.process_time()
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            x = self.encoder.embed(self.tiles, self.positions)
            for layer in range(self.encoder.config["layers"]):
                x = self.encoder.layer(layer, x)
            self.result = self.encoder.pool(self.encoder.final_norm(x), "mean")
        return time.perf_counter() - start, time.process_time() - before

    def out(self):
        return self.result.float()


def report(options, engine, peer, services, times, peak):
    figures = engine.figures()
    flops = figures["product_flops"] + figures["attention_flops"]
    mib = 1 / (1 << 20)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    best = [tuple(map(min, zip(*runs))) for runs in times if runs]
    memories = [(engine.name, figures["most_resident_bytes"] * mib), ("PyTorch", resident)]
    memories += [(service.name, service.most_bytes * mib) for service in services]
    print("| contestant | s | processor s | tiles/s | % of peak | resident MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for (name, memory), (wall, processor) in zip(memories, best):
        print(f"| {name} | {wall:.2f} | {processor:.2f} | {options.tiles / wall:.0f} "
              f"| {100e-9 * flops / wall / peak:.0f} | {memory:.0f} |")
    print(f"\nPeak of float32 multiply-adds in this run: {peak:.0f} GFLOP/s; the slide takes "
          f"{figures['product_flops'] * 1e-12:.2f} TFLOP of products and "
          f"{figures['attention_flops'] * 1e-12:.2f} of attention.")
    print(f"The engine's rank 0, of {options.ranks}, in the last round: {figures['row_seconds']:.2f} s of "
          f"rows and products, {figures['attention_seconds']:.2f} s of attention, "
          f"{figures['wait_seconds']:.2f} s of waiting; {figures['taken_bytes'] * mib:.0f} MiB taken "
          f"({figures['planned_bytes'] * mib:.0f} planned), and {figures['weight_bytes'] * mib:.0f} MiB of "
          f"weights.")
    for service in services:
        taken = ", ".join(f"{a * mib:.0f} ({b * mib:.0f} planned)" for a, b in service.figures())
        print(f"{service.name}: MiB taken by each for the job {taken}; its vector differs from the "
              f"engine's by {float((service.out() - engine.out()).abs().max()):.1e} at most.")
    print(f"PyTorch takes {best[1][0] / best[0][0]:.2f} times the engine's seconds, "
          f"{best[1][1] / best[0][1]:.2f} times its processor seconds; the slide's vectors differ by "
          f"{float((engine.out() - peer.out()).abs().max()):.1e} at most, "
          f"of values up to {float(peer.out().abs().max()):.1f}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder-case", required=True, help="Path of the program encoder_case")
    parser.add_argument("--tiles", type=int, default=10000)
    parser.add_argument("--size", choices=SIZES, default="published")
    parser.add_argument("--compute", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ranks", type=int, default=1, help="Ranks that share the engine's threads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--service", type=Path, help="Folder of the service's programs (default: without the service)")
    parser.add_argument("--service-workers", default="1,2", help="Numbers of the service's workers")
    parser.add_argument("--quick", action="store_true", help="Run a smoke test: small, one round")
    options = parser.parse_args()
    if options.quick:
        options.tiles, options.size, options.rounds = 500, "small", 1
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before PyTorch is loaded
    global np, torch, torch_encoder
    import numpy as np
    import torch
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))
    import torch_encoder
    torch.set_num_threads(options.threads)

    config = config_of(options.size)
    weights = random_weights(config)
    generator = torch.Generator().manual_seed(2)
    tiles = torch.randn((options.tiles, config["input_dim"]), generator=generator)
    side = config["position"]["tile_size"] * config["position"]["grid"]
    coords = torch.floor(torch.rand((options.tiles, 2), generator=generator) * side)
    print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}); {options.size} size, "
          f"{options.tiles} tiles, {options.compute}, {options.threads} threads, "
          f"best of {options.rounds} rounds\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_model(folder, config, weights)
        if options.service:
            (folder / "models").mkdir()
            (folder / "models" / "model").symlink_to(folder)
            np.save(folder / "tiles.npy", tiles.numpy())
            np.save(folder / "coords.npy", coords.numpy())
        tiles.numpy().tofile(folder / "tiles")
        coords.numpy().tofile(folder / "coords")
        engine = Engine(options, folder, options.compute)
        peer = Torch(config, weights, tiles, coords, options.compute)
        counts = options.service_workers.split(",") if options.service else []
        services = [Service(options, folder, int(count)) for count in counts]
        runners = [engine, peer, *services]
        times, peak = [[] for _ in runners], 0.0
        for _ in range(options.rounds):
            peak = max(peak, engine.peak())
            for runner, runs in zip(runners, times):
                runs.append(runner.run())
                time.sleep(0.05)  # until the last runner's threads stop spinning
        report(options, engine, peer, services, times, peak)
        for runner in (engine, *services):
            runner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
