"""docs/metrics.md against what the running coordinator and workers serve, in both directions."""
import os
import re
import tempfile
import unittest
from pathlib import Path

from running_service import await_true, http_get
from service_under_test import WITH_TLS, Exposition, ServiceUnderTest

PAGE = Path(os.environ["SOURCE_FOLDER"]) / "docs" / "metrics.md"


def rows_of_the_page():
    """(metric, type, labels, process) -> meaning."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or not cells[0].startswith("`"):
            continue
        labels = tuple(sorted(re.findall(r"`([a-z_]+)`", cells[2])))
        key = (cells[0].strip("`"), cells[1], labels, cells[3])
        assert key not in rows, f"twice on the page: {key}"
        rows[key] = cells[4]
    return rows


def rows_of(text, process):
    exposition = Exposition(text)
    return {(name, kind, tuple(sorted(exposition.labels(name))), process): exposition.helps[name]
            for name, kind in exposition.kinds.items()}


class MetricsPage(unittest.TestCase):
    def test_the_page_says_what_is_served(self):
        with tempfile.TemporaryDirectory() as folder, ServiceUnderTest(folder) as service:
            service.attend()
            coordinator = service.get("/metrics")
            targets = service.targets()
            self.assertEqual(len(targets), 2)
            worker = http_get(f"http://{targets[0]['targets'][0]}/metrics")
        served = {**rows_of(coordinator, "coordinator"), **rows_of(worker, "worker")}
        page = {key: meaning for key, meaning in rows_of_the_page().items() if key[0] not in WITH_TLS}
        # A metric of both programs has one line.
        for key in list(served):
            twin = (*key[:3], "worker")
            if key[3] == "coordinator" and served.get(twin) == served[key]:
                served[(*key[:3], "both")] = served.pop(key)
                served.pop(twin)
        lines = [f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {process} | "
                 f"{meaning} |" for (name, kind, labels, process), meaning in sorted(served.items())]
        self.maxDiff = None
        self.assertEqual(page, served, "the page should have\n" + "\n".join(lines))

    def test_sums_are_those_of_the_reports(self):
        with tempfile.TemporaryDirectory() as folder, ServiceUnderTest(folder) as service:
            def of_workers():
                return [Exposition(http_get(f"http://{target['targets'][0]}/metrics"))
                        for target in service.targets()]

            before = of_workers()  # workers know of the warm-up job, and count it
            reports = [service.attend(tokens=tokens) for tokens in (2048, 4096)]
            # gRPC may end a request after its client: the count comes then.
            pages = [Exposition(service.get("/metrics"))]

            def both_are_counted():
                pages.append(Exposition(service.get("/metrics")))
                return pages[-1].total("hilbert_ring_requests_total", method="Attend", code="OK") >= 2

            await_true("both requests are counted", both_are_counted)
            seen = pages[-1]
            # A worker counts its part when it has freed its memory.
            await_true("the workers have counted their parts", lambda: sum(
                worker.total("hilbert_ring_runs_total", code="OK") for worker in of_workers()) == 6)
            after = of_workers()

        def of_reports(field):
            return sum(float(worker[field]) for report in reports for worker in report["workers"])

        total = seen.total
        self.assertEqual(total("hilbert_ring_jobs_total", code="OK"), 2)
        self.assertEqual(total("hilbert_ring_executions_total", code="OK"), 2)
        self.assertEqual(total("hilbert_ring_tokens_total"), 2048 + 4096)
        exchanged = sum(float(report["bytes_exchanged"]) for report in reports)
        self.assertGreater(exchanged, 0)
        self.assertEqual(total("hilbert_ring_exchanged_bytes_total", transport="gloo"), exchanged)
        self.assertEqual(total("hilbert_ring_exchange_planned_bytes_total"), exchanged)
        self.assertEqual(total("hilbert_ring_exchange_naive_bytes_total"),
                         sum(float(report["bytes_exchanged_naive"]) for report in reports))
        self.assertAlmostEqual(total("hilbert_ring_flops_total") / of_reports("flops"), 1)
        self.assertAlmostEqual(total("hilbert_ring_worker_flops_total") / of_reports("flops"), 1)
        self.assertEqual(total("hilbert_ring_job_phase_seconds_count", phase="exposed_exchange"), 2)
        self.assertAlmostEqual(total("hilbert_ring_job_seconds_sum"),
                               sum(report["total_seconds"] for report in reports), places=4)
        self.assertEqual(total("hilbert_ring_memory_peak_over_predicted_ratio_count"), 4)
        self.assertEqual(total("hilbert_ring_requests_total", method="Attend", code="OK"), 2)
        self.assertEqual(total("hilbert_ring_requests_in_flight", method="Attend"), 0)
        self.assertEqual(total("hilbert_ring_rings_formed_total", code="OK", again="false"), 1)
        self.assertGreater(total("process_resident_memory_bytes"), 1 << 20)

        def of_jobs(name, **labels):
            return (sum(worker.total(name, **labels) for worker in after)
                    - sum(worker.total(name, **labels) for worker in before))

        self.assertEqual(of_jobs("hilbert_ring_runs_total", code="OK"), 4)
        self.assertEqual(of_jobs("hilbert_ring_run_tokens_total"), 2048 + 4096)
        for direction in ("sent", "received"):
            self.assertEqual(
                of_jobs("hilbert_ring_run_exchanged_bytes_total", direction=direction), exchanged)


if __name__ == "__main__":
    unittest.main()
