package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
)

func TestDefaultsAreValid(t *testing.T) {
	s, err := Parse(nil, "appliance.yaml", "node1")
	if err != nil {
		t.Fatal(err)
	}

	for got, want := range map[string]string{
		s.Node:              "node1",
		s.PKIDir():          "/var/lib/saltern/cluster/pki",
		s.UserConfDir():     "/var/lib/saltern/cluster/etc/master.d",
		s.APISocket():       "/run/saltern/applianced.sock",
		s.MasterRequest():   "127.0.0.1:14506",
		s.FrontPublish()[0]: "0.0.0.0:4505",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParse(t *testing.T) {
	s, err := Parse([]byte(`
node: sca-1.example
data_dir: /data
front: {addresses: [10.0.0.1, "::1"], publish_port: 5505}
storage: {path: /srv/cluster}
limits: {stop_timeout: 5s}
master:
  options: {timeout: 7, nodegroups: {web: 'L@a,b'}}
allow_insecure: [auto_accept]
`), "f", "x")
	if err != nil {
		t.Fatal(err)
	}

	if s.PKIDir() != "/srv/cluster/pki" || s.FrontPublish()[1] != "[::1]:5505" || s.Front.RequestPort != 4506 ||
		s.Limits.StopTimeout != 5*time.Second || s.Master.Options["timeout"] != 7 || !s.LB.Enabled {
		t.Errorf("%+v", s)
	}
}

// Each fault is named with its key; several come at once.
func TestFaults(t *testing.T) {
	for text, want := range map[string][]string{
		"nod: a":                               {"f: line 1: field nod not found in Settings"},
		"front: {publish_port: abc}\nnodes: 1": {"line 1: cannot unmarshal", "line 2: field nodes not found"},
		"node: ../x":                           {`node: "../x" is not a host name`},
		"node: 'a\n\nb'":                       {"node: "},
		"cluster: ''":                          {"cluster: "},
		"data_dir: var":                        {"data_dir: "},
		"data_dir: /":                          {"data_dir: "},
		"runtime_dir: /" + strings.Repeat("x", 100):     {"runtime_dir: too long"},
		"front: {publish_port: 0, request_port: 70000}": {"front.publish_port: 0", "front.request_port: 70000"},
		"front: {publish_port: 4506}":                   {"front: publish_port and request_port are both 4506"},
		"front: {publish_port: 14506}":                  {"front: port 14506 is the master's as well"},
		"front: {addresses: []}":                        {"front.addresses: empty"},
		"front: {addresses: [localhost]}":               {`front.addresses: "localhost" is not an IP address`},
		"master: {address: x}":                          {`master.address: "x"`},
		"master: {options: {ret_port: 1, open_mode: true}}": {"master.options: ret_port is set by the appliance",
			"master.options: open_mode lets every minion in"},
		"storage: {kind: nfs}":            {"storage.kind: "},
		"users: {master: 'a b'}":          {"users.master: "},
		"programs: {master: salt-master}": {"programs.master: "},
		"limits: {disk_low_percent: 1}":   {"limits: "},
		"limits: {stop_timeout: 1h}":      {"limits.stop_timeout: "},
		"allow_insecure: [everything]":    {`allow_insecure: "everything"`},
		"log: {level: loud, format: xml}": {"log.level: ", "log.format: "},
		"lb: {balance: random}":           {"lb.balance: "},
		"api: {names: [a b, '*.b', -]}":   {`api.names: "a b"`, `api.names: "-"`},
		"node: a\n---\nnode: b":           {"more than one document"},
		"node: [":                         {"f: "},
		"node: a\nnode: b":                {"already defined"},
	} {
		_, err := Parse([]byte(text), "f", "node1")
		if err == nil {
			t.Errorf("%q was accepted", text)
			continue
		}

		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: error does not say %q:\n%v", text, w, err)
			}
		}
	}
}

// An appliance with open_mode or auto_accept needs to be told twice.
func TestAttack31OpenModeNeedsTwoWords(t *testing.T) {
	for _, o := range Insecure() {
		text := "master: {options: {" + o + ": true}}\n"
		if _, err := Parse([]byte(text), "f", "n"); err == nil {
			t.Errorf("%s accepted", o)
		}
		if _, err := Parse([]byte(text+"allow_insecure: ["+o+"]"), "f", "n"); err != nil {
			t.Errorf("%s refused although allowed: %v", o, err)
		}
		if _, err := Parse([]byte("master: {options: {"+o+": false}}"), "f", "n"); err != nil {
			t.Errorf("%s: false refused: %v", o, err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml"), "n"); !errors.Is(err, ErrNone) {
		t.Errorf("missing file: %v", err)
	}

	if _, err := Load(dir, "n"); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("a directory: %v", err)
	}

	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, []byte("# "+strings.Repeat("x", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := Load(big, "n"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("large file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("node: a\nfront: {addresses: [10.0.0.1]}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("master: {options: {x: [1, {y: z}]}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b, "f", "node1")
		if (s == nil) == (err == nil) {
			t.Fatal("neither settings nor error, or both")
		}
		if s != nil && (s.MasterRequest() == "" || !filepath.IsAbs(s.PKIDir())) {
			t.Fatalf("accepted but unusable: %+v", s)
		}
	})
}

// TestOneLine: an error is one line, whatever it is made of, and nothing of it is lost.
func TestOneLine(t *testing.T) {
	var list *multierror.Error
	list = multierror.Append(list, errors.New("first"), errors.Join(errors.New("second"), errors.New("third")))
	for want, err := range map[string]error{
		"plain":                             errors.New("plain"),
		"one; two":                          errors.Join(errors.New("one"), errors.New("two")),
		"first; second; third":              list,
		"yaml: unmarshal errors: line 1: x": errors.New("yaml: unmarshal errors:\n  line 1: x"),
		"a; b":                              errors.New("\n\r\na\r\n \nb\n"),
		"it ended: a; b":                    fmt.Errorf("it ended: %w", errors.Join(errors.New("a"), errors.New("b"))),
		"":                                  errors.New("\n"),
	} {
		if got := OneLine(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestIsEmpty: a text without any setting is told from one that has some, or is wrong.
func TestIsEmpty(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, " \n": true, "# node: n1\n": true, "---\n": true, "{}": true, "null": true, "~\n": true,
		"node: n1\n": false, "[": false, "x": false, "[]": false, "{a: 1}": false, "{}\n---\n{}\n": false,
	} {
		if got := IsEmpty([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
