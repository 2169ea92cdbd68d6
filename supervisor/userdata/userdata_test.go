package userdata

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"saltern/supervisor/setup"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParse(t *testing.T) {
	for name, tt := range map[string]struct {
		text  string
		node  string
		other bool
		says  []string
	}{
		"plain":              {"mode: form\nnode: a\n", "a", false, nil},
		"with our head":      {"#saltern\nnode: a\n", "a", false, nil},
		"in cloud-config":    {"#cloud-config\nusers: []\nsaltern:\n  node: a\n  mode: form\n", "a", false, nil},
		"cloud-config alone": {"#cloud-config\nusers: []\n", "", true, nil},
		"script":             {"#!/bin/sh\necho hi\n", "", true, nil},
		"mime":               {"Content-Type: multipart/mixed\n\nx", "", false, []string{"boundary"}},
		"empty":              {"\n# nothing\n", "", true, nil},
		"unknown keys":       {"nod: a\nadmin: {pasword: x}\n", "", false, []string{"nod", "pasword"}},
		"wrong types": {"node: [a]\npeers: 5\n", "", false,
			[]string{"line 1: node may hold text, not a list", "line 2: peers may hold a list"}},
		"a list":              {"- a\n", "", false, []string{"list of answers"}},
		"saltern is no map":   {"saltern: 5\n", "", false, []string{"list of answers"}},
		"not YAML":            {"a: [\n", "", false, []string{"yaml"}},
		"saltern: all answer": {"saltern: {mode: join, node: b, peers: [192.0.2.1]}\n", "b", false, nil},
	} {
		a, err := Parse([]byte(tt.text))
		switch {
		case tt.other:
			if !errors.Is(err, ErrOther) {
				t.Errorf("%s: %v %v", name, a, err)
			}
		case len(tt.says) > 0:
			if err == nil {
				t.Errorf("%s: taken", name)
				continue
			}

			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) || strings.Contains(err.Error(), "setup.") {
					t.Errorf("%s: no %q in %v", name, s, err)
				}
			}
		case err != nil || a.Node != tt.node:
			t.Errorf("%s: %+v %v", name, a, err)
		}
	}

	if _, err := Parse([]byte("node: " + strings.Repeat("a", maxText))); err == nil {
		t.Error("a large text was taken")
	}
}

func TestNothingGiven(t *testing.T) {
	p := Places{
		CommandLine: file(t, "cmdline", "root=/dev/sda1 quiet\n"),
		Seeds:       []string{t.TempDir(), "/nonexistent"},
		Devices:     t.TempDir(),
		EC2:         "http://127.0.0.1:1",
		DMI:         t.TempDir(),
		GuestInfo:   []string{"no-such-tool"},
		File:        "/nonexistent/answers.yaml",
		Log:         quiet(),
	}

	if found, err := p.Look(t.Context()); found.Answers != nil || found.From != "" || len(found.Unused) > 0 ||
		err != nil {
		t.Errorf("%+v %v", found, err)
	}
}

func TestCommandLine(t *testing.T) {
	path := file(t, "answers.yaml", "node: from-file\n")
	for line, want := range map[string]string{
		"quiet saltern.answers=" + path: "from-file",
		"saltern.answers64=" + base64.StdEncoding.EncodeToString([]byte("node: b64\n")):                   "b64",
		"saltern.set=mode:form saltern.set=node:one saltern.set=storage.kind:local saltern.set=peers:a,b": "one",
		"saltern.answers=relative":       "!absolute",
		"saltern.answers=/nonexistent/x": "!no such file",
		"saltern.answers64=%%":           "!base64",
		"saltern.set=novalue":            "!KEY:VALUE",
	} {
		p := Places{CommandLine: file(t, "cmdline", line), Log: quiet()}
		found, err := p.Look(t.Context())
		a, from := found.Answers, found.From
		if says, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), says) || from == "" {
				t.Errorf("%s: %v %v", line, a, err)
			}
			continue
		}

		if err != nil || a == nil || a.Node != want {
			t.Errorf("%s: %+v %v", line, a, err)
		}
	}
}

func TestSeedDirectory(t *testing.T) {
	dir := t.TempDir()
	p := Places{Seeds: []string{dir}, Log: quiet()}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("user-data", "#cloud-config\nusers: []\n")
	if found, err := p.Look(t.Context()); found.Answers != nil || err != nil {
		t.Errorf("of cloud-init alone: %v %v", found, err)
	}

	write("saltern.yaml", "node: ours\n")
	if found, err := p.Look(t.Context()); err != nil || found.Answers == nil ||
		found.Answers.Node != "ours" || found.From != "the cidata disk" {
		t.Errorf("%+v %v", found, err)
	}

	write("saltern.yaml", "node: [\n")
	if found, err := p.Look(t.Context()); err == nil || found.From == "" {
		t.Errorf("wrong answers were passed over: %+v %v", found, err)
	}
}

// TestSeedDisk reads real disks of the kinds that the kernel knows; root is needed.
func TestSeedDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: root is needed to mount a disk")
	}

	dir := t.TempDir()
	seed := filepath.Dir(file(t, "user-data", "node: disk\n"))
	for _, tt := range []struct {
		kind string
		make [][]string
	}{
		{"ext4", [][]string{{"mkfs.ext4", "-q", "-L", "CIDATA", "-d", seed, "{}", "2m"}}},
		{"vfat",
			[][]string{
				{"mkfs.vfat", "-n", "CIDATA", "-C", "{}", "1024"},
				{"mcopy", "-i", "{}", filepath.Join(seed, "user-data"), "::user-data"},
			}},
		{"iso9660", [][]string{{"xorrisofs", "-quiet", "-J", "-R", "-V", "CIDATA", "-o", "{}", seed}}},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			disk := filepath.Join(dir, tt.kind)
			for _, argv := range tt.make {
				if _, err := exec.LookPath(argv[0]); err != nil {
					t.Skipf("NOT TESTED: %v", err)
				}

				argv = slices.Clone(argv)
				argv[slices.Index(argv, "{}")] = disk
				if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v %s", argv, err, out)
				}
			}

			device := loopDisk(t, disk)
			var text []byte
			// loads what the kernel has of it
			err := withMounted(device, func(dir string) { text, _ = os.ReadFile(filepath.Join(dir, sharedSeed)) })
			kinds, _ := os.ReadFile("/proc/filesystems")
			if err != nil && len(kinds) > 0 && !strings.Contains(string(kinds), "\t"+tt.kind+"\n") {
				t.Skipf("NOT TESTED: this kernel has no %s: %v", tt.kind, err)
			}

			if err != nil || string(text) != "node: disk\n" {
				t.Errorf("%q %v", text, err)
			}
		})
	}
}

// metadataService speaks as Amazon's service does with version 1 switched off.
func metadataService(t *testing.T, userData string, code int) (*httptest.Server, *atomic.Int32) {
	var tokens atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Forwarded-For") != "":
			w.WriteHeader(http.StatusForbidden)
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" &&
			r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
			tokens.Add(1)
			fmt.Fprint(w, "TOKEN==")
		case r.Method == http.MethodGet && r.Header.Get("X-aws-ec2-metadata-token") != "TOKEN==":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet && r.URL.Path == "/latest/user-data":
			w.WriteHeader(code)
			fmt.Fprint(w, userData)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))

	t.Cleanup(srv.Close)
	return srv, &tokens
}

func TestEC2(t *testing.T) {
	dmi := filepath.Dir(file(t, "sys_vendor", "Amazon EC2\n"))
	ask := func(userData string, code int) (*setup.Answers, int32, error) {
		srv, tokens := metadataService(t, userData, code)
		found, err := Places{EC2: srv.URL, DMI: dmi, Log: quiet()}.Look(t.Context())
		return found.Answers, tokens.Load(), err
	}

	if a, n, err := ask("#saltern\nnode: ec2\n", 200); err != nil || a == nil || a.Node != "ec2" || n != 1 {
		t.Errorf("%+v %v, %d tokens", a, err, n)
	}

	if a, _, err := ask("", 404); a != nil || err != nil {
		t.Errorf("none given: %+v %v", a, err)
	}

	if a, _, err := ask("#!/bin/sh\n", 200); a != nil || err != nil {
		t.Errorf("a script: %+v %v", a, err)
	}

	srv, tokens := metadataService(t, "node: x\n", 200)
	if a, err := (Places{
		EC2: srv.URL,
		DMI: filepath.Dir(file(t, "sys_vendor", "QEMU\n")),
		Log: quiet(),
	}).Look(t.Context()); a.Answers != nil || err != nil || tokens.Load() != 0 {
		t.Errorf("on another machine: %v %v, %d tokens", a, err, tokens.Load())
	}

	// A service that is not there: an error when the time is over, never a wait for ever.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Places{EC2: "http://127.0.0.1:1", DMI: dmi, Log: quiet()}).Look(ctx); err == nil {
		t.Error("no service, no error")
	}
}

func TestOVF(t *testing.T) {
	env := `<?xml version="1.0"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:oe="http://schemas.dmtf.org/ovf/environment/1">
 <PropertySection>
  <Property oe:key="saltern.mode" oe:value="join"/>
  <Property oe:key="saltern.node" oe:value="ovf"/>
  <Property oe:key="saltern.peers" oe:value="192.0.2.1, 192.0.2.2"/>
  <Property oe:key="saltern.secret" oe:value="correct-horse-battery-staple"/>
  <Property oe:key="saltern.network.dns" oe:value="192.0.2.53"/>
  <Property oe:key="saltern.admin.password" oe:value=""/>
  <Property oe:key="other.node" oe:value="not ours"/>
 </PropertySection></Environment>`

	dir := filepath.Dir(file(t, "ovf-env.xml", env))
	found, err := Places{OVF: dir, Log: quiet()}.Look(t.Context())
	a, from := found.Answers, found.From
	if err != nil || a == nil || a.Node != "ovf" || len(a.Peers) != 2 || a.Peers[1] != "192.0.2.2" ||
		a.Network.DNS[0] != "192.0.2.53" || from != "the OVF environment" {
		t.Errorf("%+v %q %v", a, from, err)
	}

	one := `<Environment><PropertySection><Property key="saltern.answers" value="` +
		base64.StdEncoding.EncodeToString([]byte("node: all\n")) + `"/></PropertySection></Environment>`
	if given, err := ParseOVF([]byte(one)); err != nil || given.Answers.Node != "all" {
		t.Errorf("%+v %v", given, err)
	}

	if _, err := ParseOVF([]byte("<a><b></a>")); err == nil {
		t.Error("bad XML was taken")
	}

	if _, err := ParseOVF([]byte(strings.Repeat("<a>", 50))); err == nil {
		t.Error("deep XML was taken")
	}
}

// TestGuestInfo: VMware's tool is a program that prints; one is written here.
func TestGuestInfo(t *testing.T) {
	tool := file(t, "vmware-rpctool", "#!/bin/sh\ncase \"$1\" in\n'info-get guestinfo.userdata') echo "+
		base64.StdEncoding.EncodeToString([]byte("node: guest\n"))+";;\n'info-get guestinfo.userdata.encoding') echo base64;;\n*) exit 1;;\nesac\n")
	if err := os.Chmod(tool, 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := Places{GuestInfo: []string{tool}, Log: quiet()}.Look(t.Context())
	if a := found.Answers; err != nil || a == nil || a.Node != "guest" {
		t.Errorf("%+v %v", found, err)
	}
}

// TestGuestInfoEncodings: every encoding that cloud-init's DataSourceVMware knows,
// in any case (F6); foreign user-data does not hide properties (F10).
func TestGuestInfoEncodings(t *testing.T) {
	properties := string(ovfEnvironment("node", "0042"))
	for name, tt := range map[string]struct {
		keys   map[string]string
		node   string // "": none
		unused string
		fault  string
	}{
		"plain": {map[string]string{"userdata": config}, "given", "", ""},
		"BASE64": {map[string]string{"userdata": inBase64(config), "userdata.encoding": "BASE64"},
			"given", "", ""},
		"b64": {map[string]string{"userdata": inBase64(config), "userdata.encoding": "b64"},
			"given", "", ""},
		"gzip+base64": {map[string]string{"userdata": inBase64(gzipped(t, config)), "userdata.encoding": "gzip+base64"},
			"given", "", ""},
		"Gz+B64": {map[string]string{"userdata": inBase64(gzipped(t, config)), "userdata.encoding": "Gz+B64"},
			"given", "", ""},
		"base64, not said": {map[string]string{"userdata": inBase64(config)}, "given", "", ""},
		"unknown": {map[string]string{"userdata": config, "userdata.encoding": "rot13"}, "",
			"encoding rot13 is not known", ""},
		"not base64": {map[string]string{"userdata": "#!", "userdata.encoding": "b64"}, "",
			"not base64", "not base64"},
		"redacted":          {map[string]string{"userdata": "---"}, "", "", ""},
		"properties":        {map[string]string{"ovfEnv": properties}, "0042", "", ""},
		"foreign, then OVF": {map[string]string{"userdata": script, "ovfEnv": properties}, "0042", "a script", ""},
		"vendor data":       {map[string]string{"vendordata": script}, "", "vendordata is not read", ""},
		"wrong": {map[string]string{"userdata": "#cloud-config\nsaltern: {nod: x}\n", "ovfEnv": properties},
			"", "", "guestinfo.userdata: 1 error occurred:\n\t* line 2: nod"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for key, text := range tt.keys {
				if err := os.WriteFile(filepath.Join(dir, "guestinfo."+key), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			tool := filepath.Join(dir, "vmware-rpctool")
			if err := os.WriteFile(tool, []byte("#!/bin/sh\nexec cat \""+dir+"/${1#info-get }\"\n"),
				0o755); err != nil {
				t.Fatal(err)
			}

			found, err := Places{GuestInfo: []string{tool}, Log: quiet()}.Look(t.Context())
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("%v, want %q", err, tt.fault)
				}
				return
			}

			if err != nil || (found.Answers == nil) != (tt.node == "") ||
				tt.node != "" && found.Answers.Node != tt.node {
				t.Errorf("%+v %v", found, err)
			}

			if !strings.Contains(strings.Join(found.Unused, "\n"), tt.unused) ||
				tt.unused == "" && len(found.Unused) > 0 {
				t.Errorf("%q, want %q", found.Unused, tt.unused)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("#cloud-config\nsaltern: {mode: join, peers: [a], settings: {x: {y: 1}}}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("mode: form\nsettings: &a {<<: *a, x: *a}\n"))
	for _, text := range packings(f) {
		f.Add([]byte(text))
	}

	for text := range foreignTexts(f) {
		if len(text) < 4096 {
			f.Add([]byte(text))
		}
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		for _, whose := range []owner{shared, oursAlone} {
			if a, err := findAnswers(b, whose); (a == nil) == (err == nil) {
				t.Fatal("neither answers nor error, or both")
			}
		}
	})
}

func FuzzParseOVF(f *testing.F) {
	f.Add([]byte(`<Environment><PropertySection><Property key="saltern.network.dns" value="[1"/></PropertySection></Environment>`))
	f.Add(ovfEnvironment("answers", inBase64(config)))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = ParseOVF(b) })
}

// FuzzCommandLine: a word is taken as it is, or named in an error.
func FuzzCommandLine(f *testing.F) {
	f.Add("node:a%20b")
	f.Add("peers:a,b")
	f.Add("settings.master.options.x:1")
	f.Fuzz(func(t *testing.T, word string) {
		var set properties
		setWord(&set, word)
		key, _, _ := strings.Cut(word, ":")
		if _, err := set.result(); err != nil && !strings.Contains(err.Error(), key) {
			t.Fatalf("%q: %v", word, err)
		}
	})
}
