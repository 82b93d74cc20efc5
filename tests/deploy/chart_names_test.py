"""Names and labels in the chart's renderings: Kubernetes takes each, for any name of the release and of its values."""
import copy
import re
import unittest

from chart_test import EVERYTHING, rendered, yaml

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
LONGEST_LABEL = 63
# Kubernetes labels the pods of a StatefulSet with its name, "-" and a hash.
REVISION = "-" + 10 * "f"
# A LeaderWorkerSet makes a StatefulSet of each group.
LAST_GROUP = "-1023"

READ_AS_OTHERS = ["1234", "true", "null", "1e3", "0x10", "on", "no", "1.5", "0o17", "12e4"]
RELEASES = ["hilbert-ring", "ring", "my-hilbert-ring-2", "a.b", "a-b", "9lives", 27 * "a", 28 * "a",
            33 * "a", 53 * "a", 52 * "a" + "b", 53 * "1", "hilbert-ring-" + 40 * "x",
            30 * "a" + "--" + 9 * "b", 26 * "a." + "z", *READ_AS_OTHERS]
GROUPS = {"worker": {"kind": "LeaderWorkerSet"}}


class Reader(yaml.CSafeLoader):
    """Takes for numbers what Kubernetes' reader does. PyYAML takes these for text."""


Reader.add_implicit_resolver("!number", re.compile(r"[-+]?[0-9]+e[-+]?[0-9]+$|0o[0-7]+$"), list("-+0123456789"))
Reader.add_constructor("!number", lambda _, node: ("a number", node.value))


def render(values, *release):
    code, documents, said = rendered(values, *release)
    if code != 0:
        raise AssertionError(said)
    return [o for o in yaml.load_all(documents, Reader) if o]


def nodes(value, path=()):
    """(path, value) of everything in a document."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from nodes(child, (*path, key))


def named(word):
    """EVERYTHING, with the word for every name that a user gives."""
    values = copy.deepcopy(EVERYTHING)
    values["image"] = {"repository": word, "tag": word, "pullSecrets": [{"name": word}]}
    values["joinToken"] = {"secretName": word}
    values["auth"].update(secretName=word, workersSecretName=word)
    values["tls"].update(secretName=word, workerName=word)
    values["podMonitor"].update(tokenSecretName=word, labels={"a": word})
    for claim in ("models", "dataRoot"):
        values[claim] = {"claimName": word, "subPath": word}
    for component in ("coordinator", "worker"):
        values.setdefault(component, {}).update(
            priorityClassName=word, annotations={"a": word}, nodeSelector={"a": word})
    values["worker"].update(runtimeClassName=word, gpuResource=word, topologySpread={"topologyKey": word})
    return values


def replaced(value, old, new):
    if isinstance(value, dict):
        return {replaced(key, old, new): replaced(child, old, new) for key, child in value.items()}
    if isinstance(value, list):
        return [replaced(child, old, new) for child in value]
    return value.replace(old, new) if isinstance(value, str) else value


class Names(unittest.TestCase):
    def check_name(self, kind, name):
        self.assertIsInstance(name, str)
        self.assertTrue(SUBDOMAIN.fullmatch(name), name)
        longest = name
        if kind in ("Service", "LeaderWorkerSet"):
            self.assertTrue(SERVICE.fullmatch(name), name)
        if kind == "StatefulSet":
            longest += REVISION
        elif kind == "LeaderWorkerSet":
            longest += LAST_GROUP + REVISION
        self.assertLessEqual(len(longest), LONGEST_LABEL, longest)

    def check_labels(self, labels):
        for key, value in labels.items():
            self.assertIsInstance(key, str)
            self.assertIsInstance(value, str, key)
            self.assertTrue(LABEL.fullmatch(value), value)
            self.assertLessEqual(len(value), LONGEST_LABEL)

    def check(self, documents):
        pods = [dict(value) for document in documents for path, value in nodes(document)
                if path[-3:] in (("template", "metadata", "labels"), ("workerTemplate", "metadata", "labels"))]
        self.assertEqual(len(pods), 2)
        services = {document["metadata"]["name"] for document in documents if document["kind"] == "Service"}
        for document in documents:
            self.check_name(document["kind"], document["metadata"]["name"])
            for path, value in nodes(document):
                if path and path[-1] in ("labels", "matchLabels") and isinstance(value, dict):
                    self.check_labels(value)
                if path and path[-1] == "serviceName":
                    self.assertIn(value, services)
            selector = document["spec"].get("selector") if document["kind"] == "Service" else None
            if selector:
                self.check_labels(selector)
                self.assertEqual(sum(selector.items() <= pod.items() for pod in pods), 1, selector)
        (address,) = {value for document in documents for _, value in nodes(document)
                      if isinstance(value, str) and value.startswith("--coordinator=")}
        self.assertIn(re.split("[=:]", address)[1], services)

    def test_kubernetes_takes_the_names_of_every_release(self):
        names = set()
        for release in RELEASES:
            with self.subTest(release=release):
                documents = render(EVERYTHING, release, "1234")
                self.check(documents)
                names |= {document["metadata"]["name"] for document in documents
                          if document["kind"] == "ServiceAccount"}
                (scaler,) = [o for o in documents if o["kind"] == "HorizontalPodAutoscaler"]
                self.assertEqual(scaler["spec"]["metrics"][0]["external"]["metric"]["selector"],
                                 {"matchLabels": {"namespace": "1234"}})
        self.assertEqual(len(names), len(RELEASES), "each release has names of its own")

    def test_kubernetes_takes_the_names_of_groups(self):
        for release in (28 * "a", 53 * "a"):
            with self.subTest(release=release):
                self.check(render(GROUPS, release))

    def test_names_that_are_good_stay_as_they_are(self):
        for release, name in (("hilbert-ring", "hilbert-ring"), ("ring", "ring-hilbert-ring"),
                              (27 * "a", 27 * "a" + "-hilbert-ring")):
            accounts = [o["metadata"]["name"] for o in render({}, release) if o["kind"] == "ServiceAccount"]
            self.assertEqual(accounts, [name])

    def test_a_name_stays_text(self):
        word = "some-word"
        documents = render(named(word))
        for odd in READ_AS_OTHERS:
            with self.subTest(odd=odd):
                self.assertEqual(render(named(odd)), replaced(documents, word, odd))


if __name__ == "__main__":
    unittest.main()
