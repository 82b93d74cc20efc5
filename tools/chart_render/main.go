// Renders a Helm chart like `helm template`, with Go's templates, the sprig functions and Helm's most used functions.
// Numbers are float64, like in Helm.
//
//	chart_render [-name RELEASE] [-namespace NAMESPACE] [-values FILE]... CHART
//
// Documents go to standard output in the order of their files. NOTES.txt is rendered and dropped.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

var releaseName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

const longestReleaseName = 53

type object = map[string]interface{}

func readYAML(text []byte, into *object) error {
	var parsed interface{}
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		return err
	}
	if parsed == nil {
		parsed = object{}
	}
	asJSON, err := json.Marshal(parsed)
	if err != nil {
		return err
	}
	return json.Unmarshal(asJSON, into)
}

func readFile(path string) (object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := object{}
	if err := readYAML(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// Merges maps and replaces all other values. A null removes a key.
func merge(base, over object) object {
	for key, value := range over {
		inner, isMap := value.(object)
		old, wasMap := base[key].(object)
		switch {
		case value == nil:
			delete(base, key)
		case isMap && wasMap:
			base[key] = merge(old, inner)
		default:
			base[key] = value
		}
	}
	return base
}

func toYAML(value interface{}) string {
	text, err := yaml.Marshal(wholeNumbers(value))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// Converts whole float64 numbers to int64, so that YAML shows no fraction.
func wholeNumbers(value interface{}) interface{} {
	switch typed := value.(type) {
	case float64:
		if typed == float64(int64(typed)) {
			return int64(typed)
		}
	case object:
		copied := object{}
		for key, inner := range typed {
			copied[key] = wholeNumbers(inner)
		}
		return copied
	case []interface{}:
		copied := make([]interface{}, len(typed))
		for i, inner := range typed {
			copied[i] = wholeNumbers(inner)
		}
		return copied
	}
	return value
}

func functions(root *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	all["toYaml"] = toYAML
	all["include"] = func(name string, data interface{}) (string, error) {
		var out strings.Builder
		err := root.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	all["required"] = func(message string, value interface{}) (interface{}, error) {
		if text, isText := value.(string); value == nil || isText && text == "" {
			return value, errors.New(message)
		}
		return value, nil
	}
	all["tpl"] = func(text string, data interface{}) (string, error) {
		inner, err := template.Must(root.Clone()).New("tpl").Parse(text)
		if err != nil {
			return "", err
		}
		var out strings.Builder
		err = inner.Execute(&out, data)
		return out.String(), err
	}
	return all
}

// The value of `.Files`: the chart's files except templates.
type chartFiles struct{ folder string }

// Returns "" if there is no such file, like Helm.
func (files chartFiles) Get(path string) string {
	text, err := os.ReadFile(filepath.Join(files.folder, path))
	if err != nil {
		return ""
	}
	return string(text)
}

type valuesFiles []string

func (files *valuesFiles) String() string { return strings.Join(*files, ",") }
func (files *valuesFiles) Set(file string) error {
	*files = append(*files, file)
	return nil
}

func render(folder, name, namespace string, files []string) error {
	chart, err := readFile(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return err
	}
	values, err := readFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		over, err := readFile(file)
		if err != nil {
			return err
		}
		values = merge(values, over)
	}
	metadata := object{}
	for key, value := range chart { // .Chart.Name is chart.yaml's `name`
		metadata[strings.ToUpper(key[:1])+key[1:]] = value
	}
	data := object{
		"Values":       values,
		"Chart":        metadata,
		"Files":        chartFiles{folder},
		"Release":      object{"Name": name, "Namespace": namespace, "Service": "Helm", "Revision": 1},
		"Capabilities": object{"KubeVersion": object{"Version": "v1.30.0", "Major": "1", "Minor": "30"}},
	}

	root := template.New(fmt.Sprint(chart["name"])).Option("missingkey=zero")
	root.Funcs(functions(root))
	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	if err != nil {
		return err
	}
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := root.New(filepath.Base(path)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, path := range paths {
		base := filepath.Base(path)
		if strings.HasPrefix(base, "_") {
			continue
		}
		var out strings.Builder
		if err := root.ExecuteTemplate(&out, base, data); err != nil {
			return err
		}
		// An absent value is empty, like in Helm.
		text := strings.TrimSpace(strings.ReplaceAll(out.String(), "<no value>", ""))
		if base == "NOTES.txt" || text == "" {
			continue
		}
		fmt.Printf("---\n# Source: %s/templates/%s\n%s\n", chart["name"], base,
			strings.TrimPrefix(text, "---\n"))
	}
	return nil
}

func main() {
	name := flag.String("name", "hilbert-ring", "name of the release")
	namespace := flag.String("namespace", "default", "namespace of the release")
	var files valuesFiles
	flag.Var(&files, "values", "file of values that replace the chart's; may be repeated")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "chart_render [-name NAME] [-namespace NAME] [-values FILE]... CHART")
		os.Exit(2)
	}
	if len(*name) > longestReleaseName || !releaseName.MatchString(*name) {
		fmt.Fprintf(os.Stderr, "name is %s, must match %s and have at most %d characters\n", *name,
			releaseName, longestReleaseName)
		os.Exit(2)
	}
	if err := render(flag.Arg(0), *name, *namespace, files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
