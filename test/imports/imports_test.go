// Package imports holds the rules of who may import whom; see
// docs/architecture.md.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "saltern/"

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "saltern/...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing packages: %v\n%s", err, &stderr)
	}

	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}

		all = append(all, p)
	}
}

// in reports whether path is the folder dir or below it.
func in(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// forTests reports whether a package is there for tests alone.
func forTests(path string) bool { return in(path, "test") || in(path, "master/internal/mastertest") }

// violation names the rule that an import breaks, or "".
func violation(from, to string) string {
	if !strings.HasPrefix(to, module) {
		return ""
	}

	from, to = strings.TrimPrefix(from, module), strings.TrimPrefix(to, module)
	leaves := []string{"master/zmtp", "master/value", "master/crypt"}
	if slices.Contains([]string{"master/crypt", "internal/versioned"}, from) && to == "internal/durable" ||
		from == "internal/command" && to == "internal/printable" || from == "master/zmtp" && to == "internal/proxyproto" {
		return ""
	}
	if slices.Contains(leaves, from) || slices.Contains(
		[]string{"internal/command", "internal/durable", "internal/filelock", "internal/localsock", "internal/memlimit", "internal/prometheus", "internal/proxyproto", "internal/ratelimit",
			"internal/versioned", "internal/past", "internal/printable", "master/internal/background"},
		from) {
		return from + " imports nothing of ours"
	}

	if from == "master/msgpack" && to != "master/value" {
		return "the codec knows values only"
	}
	if from == "lbproxy" && (slices.Contains(leaves, to) || to == "master/msgpack") {
		return "" // it asks masters for a sign of life in their own words
	}
	if from == "internal/audit" {
		if slices.Contains([]string{"internal/durable", "internal/printable", "internal/ratelimit"}, to) {
			return ""
		}
		return "the audit record knows nobody whose acts it keeps"
	}

	if from == "internal/rpc" {
		if slices.Contains([]string{"internal/audit", "internal/httpserver", "internal/localsock"}, to) {
			return ""
		}
		return "the contract layer knows no contract"
	}

	if in(from, "internal/control") {
		if slices.Contains([]string{"internal/durable", "internal/localsock", "internal/printable", "internal/rpc"}, to) || in(to, "internal/control") {
			return ""
		}
		return "the contract between master and supervisor knows neither"
	}

	if in(to, "cmd") && !in(to, from) && !(in(to, "cmd/internal") && in(from, "cmd")) {
		return "nobody imports a command"
	}
	if forTests(to) && !forTests(from) {
		return "only tests import what is for tests"
	}
	if in(from, "test/load") && !in(to, "test/load") && to != "test/minion" && to != "master/msgpack" &&
		!slices.Contains(leaves, to) {
		return "load generators know the wire, not what they measure"
	}

	below := map[string][]string{
		"master":     {"supervisor", "glusterctl", "lbproxy", "tui"},
		"glusterctl": {"master", "supervisor", "lbproxy", "tui", "internal/control"},
		"lbproxy":    {"master", "supervisor", "glusterctl", "tui", "internal/control"},
		"tui":        {"master", "glusterctl", "lbproxy"},
		"supervisor": {"master", "tui"},
	}

	for dir, forbidden := range below {
		if !in(from, dir) {
			continue
		}

		for _, f := range forbidden {
			if in(to, f) {
				return dir + " must not import " + f
			}
		}
	}

	if in(from, "tui") && !in(to, "tui") &&
		!slices.Contains([]string{"supervisor/setup", "supervisor/status", "supervisor/api"}, to) {
		return "tui knows the supervisor by its local API only"
	}
	if in(from, "supervisor") && from != "supervisor" && to == "supervisor" {
		return "nothing below the supervisor knows it"
	}
	if in(from, "master") && from != "master" && to == "master" && !forTests(from) {
		return "only commands import the composition root of the master"
	}

	return ""
}

func TestImportsPointDownward(t *testing.T) {
	all := packages(t)
	if len(all) < 10 {
		t.Fatalf("only %d packages found", len(all))
	}
	for _, p := range all {
		for _, imp := range p.Imports {
			if why := violation(p.ImportPath, imp); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imp, why)
			}
		}
	}
}

func TestRules(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		bad      bool
	}{
		{"saltern/cmd/salt", "saltern/master/client", false},
		{"saltern/master/zmtp", "saltern/master/msgpack", true},
		{"saltern/master/value", "saltern/master/msgpack", true},
		{"saltern/master/msgpack", "saltern/master/value", false},
		{"saltern/master/msgpack", "saltern/internal/command", true},
		{"saltern/master/zmtp", "net", false},
		{"saltern/master/zmtp", "saltern/internal/proxyproto", false},
		{"saltern/internal/command", "saltern/internal/versioned", true},
		{"saltern/internal/printable", "saltern/internal/command", true},
		{"saltern/master/internal/background", "saltern/master/value", true},
		{"saltern/internal/durable", "saltern/internal/printable", true},
		{"saltern/internal/localsock", "saltern/internal/durable", true},
		{"saltern/lbproxy", "saltern/internal/localsock", false},
		{"saltern/internal/versioned", "saltern/internal/durable", false},
		{"saltern/master/zmtp", "saltern/internal/durable", true},
		{"saltern/master/internal/eauth", "saltern/internal/command", false},
		{"saltern/master/jobs", "saltern/supervisor", true},
		{"saltern/master/jobs", "saltern/master", true},
		{"saltern/master/internal/mastertest", "saltern/master", false},
		{"saltern/master/internal/mastertest", "saltern/test/await", false},
		{"saltern/master/internal/local", "saltern/master/internal/mastertest", true},
		{"saltern/master", "saltern/glusterctl", true},
		{"saltern/supervisor/status", "saltern/lbproxy", false},
		{"saltern/supervisor", "saltern/master/keys", true},
		{"saltern/supervisor/internal/observe", "saltern/supervisor", true},
		{"saltern/supervisor/internal/member", "saltern/supervisor", true},
		{"saltern/supervisor/internal/observe", "saltern/supervisor/status", false},
		{"saltern/tui", "saltern/master/jobs", true},
		{"saltern/tui", "saltern/supervisor/api", false},
		{"saltern/tui", "saltern/supervisor/settings", true},
		{"saltern/lbproxy", "saltern/cmd/applianced", true},
		{"saltern/lbproxy", "saltern/master/msgpack", false},
		{"saltern/lbproxy", "saltern/master/keys", true},
		{"saltern/cmd/salt", "saltern/cmd/salt/optparse", false},
		{"saltern/cmd/applianced", "saltern/cmd/salt/optparse", true},
		{"saltern/cmd/salt", "saltern/cmd/internal/saltfile", false},
		{"saltern/test/lab", "saltern/cmd/internal/saltfile", true},
		{"saltern/test/minion", "saltern/master/zmtp", false},
		{"saltern/test/lab", "saltern/supervisor/status", false},
		{"saltern/master/jobs", "saltern/test/minion", true},
		{"saltern/test/load/swarm", "saltern/test/minion", false},
		{"saltern/test/load/swarm", "saltern/test/load/spread", false},
		{"saltern/test/load/swarm", "saltern/master", true},
		{"saltern/test/load/proxybench", "saltern/lbproxy", true},
		{"saltern/internal/audit", "saltern/internal/printable", false},
		{"saltern/internal/audit", "saltern/internal/control", true},
		{"saltern/internal/rpc", "saltern/internal/localsock", false},
		{"saltern/internal/rpc", "saltern/internal/control", true},
		{"saltern/internal/control", "saltern/internal/rpc", false},
		{"saltern/master/conf", "saltern/internal/audit", false},
		{"saltern/master", "saltern/internal/control", false},
		{"saltern/supervisor", "saltern/internal/control", false},
		{"saltern/internal/control", "saltern/internal/printable", false},
		{"saltern/internal/control", "saltern/master/value", true},
	} {
		if got := violation(tt.from, tt.to) != ""; got != tt.bad {
			t.Errorf("%s imports %s: %v", tt.from, tt.to, violation(tt.from, tt.to))
		}
	}
}
