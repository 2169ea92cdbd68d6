package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"saltern/supervisor/python"
	"saltern/test/wheel"
)

// newPythonNode is a node with Salt's own Python, and a folder of wheels in its
// directory.
func newPythonNode(t *testing.T) *secretsNode {
	t.Helper()
	salt := os.Getenv("SALTERN_PYTHON")
	if salt == "" {
		t.Skip("NOT TESTED: SALTERN_PYTHON names no Python with Salt")
	}

	dir := t.TempDir()
	n := &secretsNode{t, dir, dir + "/admin"}
	for _, d := range []string{dir + "/data", dir + "/run", dir + "/shared/etc", dir + "/shared/pki", dir + "/wheels"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	salt = trimmed(t, dir+"/python", salt)
	text := fmt.Sprintf("data_dir: %[1]s/data\nruntime_dir: %[1]s/run\nstorage: {path: %[1]s/shared}\nusers: {master: nobody-of-that-name}\nmaster: {options: {saltern_renderer_python: %s}}\n",
		dir, salt)
	if err := os.WriteFile(dir+"/appliance.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	example := wheel.Pillar("saltern-example", "hello")
	example.Requires = append(example.Requires, "saltern-base")
	example.Write(t, dir+"/wheels")
	wheel.Wheel{
		Name:    "saltern-base",
		Version: "1.0",
		Files:   map[string]string{"saltern_base.py": ""},
	}.Write(t, dir+"/wheels")

	wheel.Wheel{
		Name:    "saltern-other",
		Version: "1.0",
		Files:   map[string]string{"saltern_other.py": ""},
	}.Write(t, dir+"/wheels")

	return n
}

// trimmed makes a Python with Salt out of another, where something that Salt says it needs
// is not there: the image's leaves out what only salt-cloud and others use.
func trimmed(t *testing.T, dir, salt string) string {
	t.Helper()
	out, err := exec.Command(salt, "-c",
		"import importlib.metadata as m, salt, sysconfig; print(sysconfig.get_path('purelib')); print(m.version('salt')); print(sysconfig.get_path('purelib', 'venv', {'base': '"+dir+"'}))").Output()
	if err != nil {
		t.Fatal(err)
	}

	f := strings.Fields(string(out))
	if out, err := exec.Command(salt, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	info := filepath.Join(f[2], "salt-"+f[1]+".dist-info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		t.Fatal(err)
	}

	for path, text := range map[string]string{filepath.Join(f[2], "salt.pth"): f[0] + "\n",
		filepath.Join(info, "METADATA"): "Metadata-Version: 2.1\nName: salt\nVersion: " + f[1] +
			"\nRequires-Dist: saltern-nowhere>=3.9.1\n", filepath.Join(info, "INSTALLER"): "pip\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return filepath.Join(dir, "bin/python")
}

func TestPython(t *testing.T) {
	n := newPythonNode(t)
	if out := n.must("", "python", "list", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("without packages: %s", out)
	}

	add := []string{"python", "add", "--from", n.dir + "/wheels", "saltern-example"}
	if out, err := n.applianced("", add...); err == nil || !strings.Contains(err.Error(), "--yes") ||
		!strings.Contains(out, "saltern-base") {
		t.Errorf("nobody agreed: %v %s", err, out)
	}

	if out := n.must("", append(add, "--yes")...); !strings.Contains(out, "saltern-example  1.0") {
		t.Errorf("%s", out)
	}

	var items []python.Item
	if err := json.Unmarshal([]byte(n.must("", "python", "list", "--json")), &items); err != nil ||
		len(items) != 2 || items[0].Asked || !items[1].Asked || items[0].Here {
		t.Errorf("%+v %v", items, err)
	}

	if out := n.must("", "python", "list"); strings.Count(out, ".whl") != 2 {
		t.Errorf("%s", out)
	}

	if out := n.must("", "__complete", "python", "remove", ""); !strings.Contains(out, "saltern-example\t1.0") {
		t.Errorf("completion: %s", out)
	}

	other := n.dir + "/wheels/saltern_other-1.0-py3-none-any.whl"
	for _, c := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"add"}, "name a package", true},
		{[]string{"add", "--from", "x", "--index", "y", "z"}, "one of them", true},
		{[]string{"add", "--from", "x", other}, "only files", true},
		{[]string{"add", "--hash", "sha256:00", "z"}, "no hash", true},
		{[]string{"add", "--hash", "sha256:" + strings.Repeat("0", 64), "z", "y"}, "--requirements", true},
		{[]string{"add", "--yes", "--hash", "sha256:" + strings.Repeat("0", 64), other}, "another SHA-256", false},
		{[]string{"add", "--yes", n.dir + "/none.whl"}, "no such file", false},
		{[]string{"add", "-r", n.dir + "/none"}, "no such file", false},
		{[]string{"remove", "--yes", "other"}, "no package is called", false},
		{[]string{"remove", "other"}, "--yes", true},
	} {
		var usage *usageError
		if out, err := n.applianced("", append([]string{"python"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) || errors.As(err, &usage) != c.usage {
			t.Errorf("%v: %v %s", c.args, err, out)
		}
	}

	if out := n.must("", "python", "remove", "--yes", "saltern-example"); strings.Count(out, "is removed") != 2 {
		t.Errorf("%s", out)
	}
}

// TestPythonManual runs what docs/python-packages.md tells people to type, but for
// what comes from an index; SALTERN_TEST_INDEX=1 runs that as well.
func TestPythonManual(t *testing.T) {
	n := newPythonNode(t)
	text, err := os.ReadFile("../../docs/python-packages.md")
	if err != nil {
		t.Fatal(err)
	}

	requirements := ""
	for _, name := range []string{"example", "base"} {
		file := "saltern_" + name + "-1.0-py3-none-any.whl"
		out, err := exec.Command("sha256sum", filepath.Join(n.dir, "wheels", file)).Output()
		if err != nil {
			t.Fatal(err)
		}
		requirements += fmt.Sprintf("saltern-%s==1.0 \\\n    --hash=sha256:%.64s\n", name, out)
	}

	if err := os.WriteFile(n.dir+"/requirements.txt", []byte(requirements), 0o600); err != nil {
		t.Fatal(err)
	}

	bin := n.asProgram()
	index := os.Getenv("SALTERN_TEST_INDEX") != ""
	ran := 0
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			local := slices.Contains(words, "list") || slices.Contains(words, "remove") ||
				strings.Contains(line, "wheels")
			if words[0] != "applianced" || words[1] != "python" || !local && !index ||
				strings.Contains(line, "wheelhouse") {
				continue // there is no master here, or no index
			}

			if !local {
				line = strings.TrimSpace(line) + " --yes\n"
			}

			ran++
			cmd := exec.Command("sh", "-ec", line)
			cmd.Dir, cmd.Env = n.dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s\n%v\n%s", line, err, out)
			} else if !local {
				t.Logf("%s%s", line, out)
			}
		}
	}

	if want := map[bool]int{false: 7, true: 9}[index]; ran != want {
		t.Errorf("%d commands were tried, %d are in the document", ran, want)
	}
}
