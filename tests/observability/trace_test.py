"""`attend --trace`: Perfetto's file shows the overlap of exchange and compute."""
import json
import tempfile
import unittest
from pathlib import Path

from service_under_test import ServiceUnderTest


def overlap(left, right):
    """Microseconds in which events of both lists overlap."""
    return sum(max(0.0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))
               for a in left for b in right)


class Trace(unittest.TestCase):
    def test_timeline_shows_overlap(self):
        with tempfile.TemporaryDirectory() as folder, \
                ServiceUnderTest(folder, workers=3) as service:
            path = Path(folder) / "trace.json"
            report = service.attend(tokens=12288, arguments=[f"--trace={path}"])
            trace = json.loads(path.read_text())
            untraced = service.attend(tokens=1024)
        for has in (report, *report["workers"], untraced, *untraced["workers"]):
            self.assertEqual(has["spans"], [], "spans have a file of their own")
        events = trace["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events
                 if event["ph"] == "M" and event["name"] == "process_name"}
        self.assertEqual(names[0], f"job {report['job_id']}")
        self.assertEqual([names[rank + 1] for rank in range(3)],
                         [f"worker {rank} at {worker['worker']}"
                          for rank, worker in enumerate(report["workers"])])
        spans = [event for event in events if event["ph"] == "X"]
        end = report["total_seconds"] * 1e6
        for span in spans:
            self.assertGreaterEqual(span["ts"], 0)
            self.assertLessEqual(span["ts"] + span["dur"], end * 1.01 + 1000)

        phases = [span for span in spans if span["pid"] == 0]
        self.assertEqual([span["name"] for span in phases],
                         ["queue", "ring", "start", "receive", "compute", "send"])
        for before, after in zip(phases, phases[1:]):
            self.assertAlmostEqual(before["ts"] + before["dur"], after["ts"], places=2)

        for rank, worker in enumerate(report["workers"]):
            own = [span for span in spans if span["pid"] == rank + 1]
            by_name = {name: [span for span in own if span["name"] == name]
                       for name in ("receive", "attend", "merge", "receive blocks",
                                    "wait for blocks", "send")}
            for name, found in by_name.items():
                self.assertTrue(found, f"worker {rank} has no '{name}'")
            # Two steps of a ring of three.
            self.assertEqual([span["args"]["step"] for span in by_name["receive blocks"]], [1, 2])

            def seconds(name):
                return sum(span["dur"] for span in by_name[name]) / 1e6

            self.assertAlmostEqual(seconds("receive blocks"), worker["exchange_seconds"], delta=0.01)
            self.assertAlmostEqual(seconds("wait for blocks"), worker["exposed_exchange_seconds"],
                                   delta=0.01)
            # The worker attends while blocks travel: attention hides that time.
            hidden = worker["exchange_seconds"] - worker["exposed_exchange_seconds"]
            self.assertGreater(hidden, 0)
            self.assertAlmostEqual(overlap(by_name["attend"], by_name["receive blocks"]) / 1e6, hidden,
                                   delta=0.2 * hidden + 0.01)
            self.assertLess(overlap(by_name["attend"], by_name["wait for blocks"]), 1000)


if __name__ == "__main__":
    unittest.main()
