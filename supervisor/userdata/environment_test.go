package userdata

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"saltern/supervisor/setup"
)

func TestEnvironment(t *testing.T) {
	secret := file(t, "secret", "from-a-file-of-the-engine\n")
	for name, tt := range map[string]struct {
		env   map[string]string
		want  *setup.Answers
		fault string
	}{
		"nothing": {map[string]string{"SALTERN_PYTHON": "x", "SALTERN_MODE": ""}, nil, ""},
		"a node": {map[string]string{"SALTERN_MODE": "form", "SALTERN_NODE": "0123", "SALTERN_ADDRESS": "192.0.2.1", "SALTERN_CLUSTER_ID": "blue", "SALTERN_SECRET": "0755", "SALTERN_STORAGE_KIND": "local", "SALTERN_API": "true"},
			&setup.Answers{Mode: setup.Form, Node: "0123", Address: "192.0.2.1", Cluster: "blue", Secret: "0755", Storage: setup.Storage{Kind: "local"}, API: true}, ""},
		"lists and maps": {map[string]string{"SALTERN_PEERS": "m1, m2", "SALTERN_LOG_LEVEL": "debug", "SALTERN_MASTER_OPTIONS": "{timeout: 15}"},
			&setup.Answers{Peers: []string{"m1", "m2"}, Settings: map[string]any{"log": map[string]any{"level": "debug"}, "master": map[string]any{"options": map[string]any{"timeout": 15}}}}, ""},
		"more answers": {map[string]string{"SALTERN_ANSWERS": "mode: join\nnode: a\n", "SALTERN_NODE": "b"},
			&setup.Answers{Mode: setup.Join, Node: "b"}, ""},
		"secret file": {map[string]string{"SALTERN_SECRET_FILE": secret},
			&setup.Answers{Secret: "from-a-file-of-the-engine"}, ""},
		"two secrets": {map[string]string{"SALTERN_SECRET_FILE": secret, "SALTERN_SECRET": "x"}, nil, "both set"},
		"no file":     {map[string]string{"SALTERN_SECRET_FILE": secret + "x"}, nil, "not there"},
		"no path":     {map[string]string{"SALTERN_SECRET_FILE": "secret"}, nil, "absolute"},
		"not YAML":    {map[string]string{"SALTERN_MASTER_OPTIONS": "{a"}, nil, "SALTERN_MASTER_OPTIONS: is not YAML"},
		"no map":      {map[string]string{"SALTERN_ANSWERS": "- a"}, nil, "SALTERN_ANSWERS"},
		"too much":    {map[string]string{"SALTERN_ANSWERS": "node: a" + strings.Repeat(" ", maxText)}, nil, "larger"},
		"unknown key": {map[string]string{"SALTERN_ANSWERS": "nod: a"}, nil, "nod"},
	} {
		p := Places{Environment: func(name string) string { return tt.env[name] }, Log: quiet()}
		found, err := p.Look(t.Context())
		a := found.Answers
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: %+v %v, want %q", name, a, err, tt.fault)
			}
			continue
		}

		if err != nil || !reflect.DeepEqual(a, tt.want) {
			t.Errorf("%s: %+v %v, want %+v", name, a, err, tt.want)
		}
	}
}

// TestEnvironmentFirst: what the host of a container was given does not count.
func TestEnvironmentFirst(t *testing.T) {
	host := file(t, "cmdline", "saltern.set=node:host")
	p := Places{CommandLine: host, Log: quiet(), Environment: func(name string) string {
		return map[string]string{"SALTERN_NODE": "container"}[name]
	}}
	if found, err := p.Look(t.Context()); err != nil || found.Answers.Node != "container" {
		t.Errorf("%+v %v", found, err)
	}
}

// TestEnvironmentDocument: the page has every variable with its answer.
// TestSecondDocumentOfOptions: options in a second document are not ignored, and the error does not
// quote them.
func TestSecondDocumentOfOptions(t *testing.T) {
	if _, err := optionsOf("a: 1\n---\nb: a secret\n"); err == nil || !strings.Contains(err.Error(), "more than one") ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestEnvironmentDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range append(variables(), variable{Name: secretFileVariable, Key: "secret"},
		variable{Name: answersVariable}) {
		if row := "| `" + v.Name + "` | "; !strings.Contains(string(page), row) {
			t.Errorf("docs/containers.md has no row for %s", v.Name)
		}
		if row := "| `" + v.Name + "` | `" + v.Key + "` | "; v.Key != "" && !strings.Contains(string(page), row) {
			t.Errorf("docs/containers.md does not say that %s is %s", v.Name, v.Key)
		}
	}
}
