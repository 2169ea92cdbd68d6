package conf

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
)

func TestBadOptions(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"publish_port: abc", `master:2: option publish_port: expected a whole number, found the text "abc"`},
		{"saltern_runner_max: -1", "option saltern_runner_max: -1 is "},
		{"saltern_runner_computing: -2", "option saltern_runner_computing: -2 is "},
		{"saltern_history_days: -2", "option saltern_history_days: -2 is "},
		{"saltern_history_bytes: -1", "option saltern_history_bytes: -1 is "},
		{"publish_port: 70000", "master:2: option publish_port: 70000 is not a port"},
		{"publish_port: 0", "option publish_port: 0 is not a port"},
		{"ret_port: 4506.5", "expected a whole number, found the number 4506.5"},
		{"ret_port: yes", "expected a whole number, found the boolean true"},
		{"ret_port: [1]", "expected a whole number, found a list"},
		{"auto_accept: 'True'",
			"master:2: option auto_accept: expected true or false, found the text \"True\", which Salt takes for false: write true"},
		{"auto_accept: 1",
			"master:2: option auto_accept: expected true or false, found the number 1, which Salt takes for false: write true"},
		{"file_recv: 'no'",
			"master:2: option file_recv: expected true or false, found the text \"no\", which Salt takes for true: write false"},
		{"auto_accept: perhaps", "expected true or false, found the text \"perhaps\""},
		{"auto_accept: 2", "expected true or false, found the number 2"},
		{"auto_accept: [1]", "expected true or false, found a list"},
		{"interface: [a]", "option interface: expected text, found a list"},
		{"file_roots: /srv", "option file_roots: expected a map, found the text"},
		{"file_roots: {base: [{a: b}]}", "option file_roots: environment base: item 1: expected text, found a map"},
		{"reactor: {a: b}", "option reactor: expected a list or text, found a map"},
		{"timeout: soon", "option timeout: expected a number, found the text"},
		{"transport: tcp", `option transport: "tcp" is not one of zeromq`},
		{"saltern_minion_event_prefixes: myapp", "option saltern_minion_event_prefixes: expected a list"},
		{"fileserver_backend: [roots, svn]\nhash_type: md4",
			`master:2: option fileserver_backend: this master does not serve files from "svn"`},
		{"hash_type: md4", "option hash_type: \"md4\" is not one of md5, sha1"},
		{"keysize: 1024", "option keysize: 1024 bits, at least 2048"},
		{"id: a/b", "option id: \"a/b\" cannot be an id"},
		{"id: ..", "option id"},
		{"publish_signing_algorithm: none", "is not one of PKCS1v15-SHA1"},
		{"log_level: loud", "option log_level: \"loud\" is not one of"},
		{"sock_dir: /" + strings.Repeat("x", 110) + "\ncachedir: /" + strings.Repeat("y", 110),
			"bytes too long for a socket"},
		{"saltern_proxy_from: 10.0.0.0/33", "neither an address nor a network"},
		{"saltern_proxy_from: {a: b}", "option saltern_proxy_from: expected a list or text"},
		{"key_pass: sdb://x/y", "option key_pass: values from sdb:// are not supported"},
		{"sharedsecret: sdb://x/y", "option sharedsecret: values from sdb:// are not supported"},
		{"nodegroups: [a]", "option nodegroups: item 1: expected one group"},
		{"publish_port: 123456789012345678901234567890", "option publish_port"},
		{"include: {a: b}", "option include: expected a path or a list of paths"},
		{"timeout: 1\ntimeout: 2", "master:3: found conflicting ID 'timeout'"},
		{"a: b: c", "master:2: mapping values are not allowed"},
	} {
		dir := write(t, map[string]string{"master": "# first line\n" + c.in + "\n"})
		_, err := loader().Load(dir)
		if err == nil {
			t.Errorf("%q: accepted", c.in)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant %s", c.in, err, c.want)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	dir := write(t, map[string]string{
		"master":          "publish_port: x\nret_port: y\n",
		"master.d/a.conf": "timeout: z\n",
		"master.d/b.conf": "a: [\n",
		"master.d/c.conf": "- list\n",
	})
	_, err := loader().Load(dir)
	var m *multierror.Error
	if !errors.As(err, &m) || len(m.Errors) != 5 {
		t.Fatalf("want 5 faults, got %v", err)
	}
}

func TestAccepted(t *testing.T) {
	dir := write(t, map[string]string{"master": `
publish_port: "4605"
id: m1
keep_jobs_seconds: 1:00
gather_job_timeout: 2.5
publisher_acl: []
event_return: mysql
log_level: off
sock_dir:
autosign_timeout: 5
saltern_proxy_from: [10.0.0.7/8, '::1', 127.0.0.1]
unknown_thing: 5
`, "master.d/_schedule.conf": "schedule: [\n"})

	_, err := loader().Load(filepath.Join(dir, "master"))
	if err == nil || !strings.Contains(err.Error(), `option log_level: "false"`) {
		t.Fatalf("log_level off: %v", err)
	}

	b, err := os.ReadFile(filepath.Join(dir, "master"))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "master"),
		[]byte(strings.Replace(string(b), "log_level: off\n", "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}

	m, err := loader().Load(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ name, got, want string }{
		{"publish_port", fmt.Sprint(m.PublishPort), "4605"},
		{"raw publish_port", fmt.Sprint(m.Raw.Int("publish_port")), "4605 true"},
		{"keep_jobs_seconds", m.KeepJobs.String(), "1m0s"},
		{"gather_job_timeout", m.GatherJobTimeout.String(), "2.5s"},
		{"publisher_acl", fmt.Sprint(m.PublisherACL.Len()), "0"},
		{"event_return", m.Raw.Str("event_return"), "mysql"},
		{"sock_dir", m.SockDir, "/var/run/salt/master"},
		{"autosign_timeout", m.AutosignTimeout.String(), "5m0s"},
		{"saltern_proxy_from", fmt.Sprint(m.ProxyFrom), "[10.0.0.0/8 ::1/128 127.0.0.1/32]"},
		{"timeout", m.Timeout.String(), "5s"},
		{"unknown_thing", fmt.Sprint(m.Raw.Int("unknown_thing")), "5 true"},
		{"token_dir", m.TokenDir, "/var/cache/salt/master/tokens"},
		{"base", fmt.Sprint(m.FileRoots["base"]), "[/srv/salt /srv/spm/salt]"},
		{"publish_session", m.PublishSession.String(), (24 * time.Hour).String()},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}

	seen := map[string]slog.Level{}
	for _, n := range m.Notes {
		seen[n.Option] = n.Level
	}

	if l, ok := seen["unknown_thing"]; !ok || l != slog.LevelDebug {
		t.Errorf("no debug note about the unknown option: %v", m.Notes)
	}

	if l, ok := seen["sock_dir"]; !ok || l != slog.LevelWarn {
		t.Errorf("no warning about the empty option: %v", m.Notes)
	}
}

func TestMissingFile(t *testing.T) {
	m, err := loader().Load(filepath.Join(t.TempDir(), "none", "master"))
	if err != nil {
		t.Fatal(err)
	}
	if m.PublishPort != 4505 || len(m.Notes) == 0 || m.Notes[0].Level != slog.LevelWarn {
		t.Errorf("port %d, notes %v", m.PublishPort, m.Notes)
	}
}

func TestIDs(t *testing.T) {
	addrs := func(s ...string) func() []netip.Addr {
		return func() (l []netip.Addr) {
			for _, a := range s {
				l = append(l, netip.MustParseAddr(a))
			}
			return l
		}
	}

	for _, c := range []struct {
		host, hosts, conf, want string
		addrs                   func() []netip.Addr
	}{
		{"box", "", "", "box_master", nil},
		{"box.example.com", "", "", "box.example.com_master", nil},
		{"box", "10.0.0.1 box box.example.com # x\n", "", "box.example.com_master", nil},
		{"box", "10.0.0.1 other.example.com\n", "", "box_master", nil},
		{"BOX.example.com", "", "minion_id_lowercase: True\nminion_id_remove_domain: True\n", "box_master", nil},
		{"box.Example.com", "", "minion_id_remove_domain: example.com\n", "box_master", nil},
		{"box", "", "append_domain: example.com\n", "box.example.com_master", nil},
		{"localhost", "", "append_domain: example.com\n", "10.1.2.3_master", addrs("127.0.0.1", "::1", "10.1.2.3")},
		{"localhost", "", "", "localhost_master", addrs("127.0.0.1")},
		{"box", "", "id: x\n", "x", nil},
	} {
		dir := write(t, map[string]string{"master": "root_dir: @DIR@\n" + c.conf, "hosts": c.hosts})
		l := &Loader{
			Hostname:  func() (string, error) { return c.host, nil },
			HostsFile: filepath.Join(dir, "hosts"),
			Addresses: c.addrs,
		}

		m, err := l.Load(dir)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if m.ID != c.want {
			t.Errorf("%s %q: id %s, want %s", c.host, c.conf, m.ID, c.want)
		}
	}
}

func TestIncludeLoopEnds(t *testing.T) {
	dir := write(t,
		map[string]string{
			"master": "include: a.conf\n",
			"a.conf": "include: [b.conf, b.conf]\n",
			"b.conf": "include: [a.conf, a.conf]\n",
		})
	if _, err := loader().Load(dir); err == nil ||
		!strings.Contains(err.Error(), "include each other") && !strings.Contains(err.Error(), "more than") {
		t.Fatalf("loop: %v", err)
	}
}

// Row 16: Load does not open files that are no regular files.
func TestAttack16ConfigurationFIFO(t *testing.T) {
	dir := write(t, map[string]string{"master": "id: m\n", "master.d/a.conf": ""})
	if err := syscall.Mkfifo(filepath.Join(dir, "master.d", "b.conf"), 0o600); err != nil {
		t.Fatal(err)
	}

	done := make(chan error, 1)
	go func() { _, err := loader().Load(dir); done <- err }()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("FIFO: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("waits for the FIFO")
	}
}

// Row 31: Load reports modes that admit everybody.
func TestAttack31OpenModes(t *testing.T) {
	for _, o := range []string{"open_mode", "auto_accept"} {
		m, err := loader().Load(write(t, map[string]string{"master": o + ": True\n"}))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, n := range m.Notes {
			found = found || n.Option == o && n.Level == slog.LevelWarn
		}
		if !found {
			t.Errorf("%s is not noted: %v", o, m.Notes)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"id: m\nroot_dir: /r\nfile_roots: {base: [/a, '/b*']}\n", "publish_port: x\n", "nodegroups: [{a: b}]\n", "external_auth: {rest: {}}\n",
		"include: [a, 1]\n", "1: 2\n~: 3\n", "log_dir: /x\nlog_file: y\n", "cluster_id: c\ncluster_peers: x\n", "fileserver_backend: [git, 1]\n", "ssl: {a: b}\n", "file_ignore_regex: [1, '(']\n",
	} {
		f.Add(s)
	}

	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, s string) {
		p := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		if err := os.WriteFile(p, []byte("default_include: ''\n"+s), 0o600); err != nil {
			t.Fatal(err)
		}

		m, err := loader().Load(p)
		if err != nil {
			return
		}

		if m.ID == "" || !filepath.IsAbs(m.PKIDir) || m.Nodegroups == nil || m.Raw.Len() < 300 {
			t.Errorf("incomplete: id %q, pki_dir %q, %d options", m.ID, m.PKIDir, m.Raw.Len())
		}
	})
}
