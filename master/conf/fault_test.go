package conf

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"
)

// Faults are in the order of the text: one file after the other in the order in which they are
// read, each from its first line, and each fault with its line.
func TestFaultsInOrderOfLines(t *testing.T) {
	dir := write(t, map[string]string{
		"master": "hash_type: md4\n\"publish_port\": x\ntransport: tcp\nfileserver_backend: [svn]\n" +
			"timeout: soon\nret_port: 0\nreactor: {}\ninclude:\n  - extra/*.conf\n  - {}\nlog_level: loud\n",
		"master.d/a.conf":  "a: b: c\n",
		"master.d/b.conf":  "interface: *nowhere\n",
		"master.d/c.conf":  "{keysize: 12, max_minions: -1,\n nodegroups: [1]}\n",
		"master.d/d.conf":  "- list\n",
		"extra/first.conf": "\nfile_recv_max_size: x\n",
	})

	_, err := loader().Load(dir)
	var all *multierror.Error
	if !errors.As(err, &all) {
		t.Fatalf("%v", err)
	}

	var got []string
	for _, e := range all.Errors {
		f := (*Fault)(nil)
		if !errors.As(e, &f) || f.Line == 0 {
			t.Errorf("%v has no line", e)
			continue
		}
		where, _, _ := strings.Cut(strings.TrimPrefix(e.Error(), dir+"/"), ": ")
		got = append(got, strings.TrimSpace(where+" "+f.Option))
	}

	want := []string{"master:1 hash_type", "master:2 publish_port", "master:3 transport",
		"master:4 fileserver_backend", "master:5 timeout",
		"master:6 ret_port", "master:7 reactor", "master:8 include", "master:11 log_level",
		"master.d/a.conf:1", "master.d/b.conf:1", "master.d/c.conf:1 keysize", "master.d/c.conf:1 max_minions", "master.d/c.conf:2 nodegroups",
		"master.d/d.conf:1", "extra/first.conf:2 file_recv_max_size"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s\n\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"), err)
	}
}

// Where Salt warns of a type and goes on as was meant, so does this master.
func TestTypesThatSaltTakes(t *testing.T) {
	for _, c := range []struct {
		in, note string
		want     bool
	}{
		{"file_recv: 1", "found the number 1; it is taken for true", true},
		{"file_recv: 0", "found the number 0; it is taken for false", false},
		{"file_recv: 'yes'", `found the text "yes"; it is taken for true`, true},
		{"file_recv: ''", `found the text ""; it is taken for false`, false},
		{"auto_accept: 0", "found the number 0; it is taken for false", false}, // True alone switches it on
		{"auto_accept: 'no'", `found the text "no"; it is taken for false`, false},
	} {
		m, err := loader().Load(write(t, map[string]string{"master": "# first line\n" + c.in + "\n"}))
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}

		name, _, _ := strings.Cut(c.in, ":")
		if raw, ok := m.Raw.Get(name); m.AutoAccept || m.FileRecv != c.want || !ok || raw != c.want {
			t.Errorf("%q: %v, %v", c.in, m.FileRecv, raw)
		}

		if n := notes(m); !strings.Contains(n, "master:2: option "+name+": expected true or false, "+c.note) {
			t.Errorf("%q: notes:\n%s", c.in, n)
		}
	}

	m, err := loader().Load(write(t,
		map[string]string{"master": "worker_threads: many\nmaster_roots: [/srv]\nwinrepo_remotes: x\nssh_timeout: soon\n"}))
	if err != nil {
		t.Fatal(err)
	}

	for _, option := range []string{"1: option worker_threads", "2: option master_roots",
		"3: option winrepo_remotes", "4: option ssh_timeout"} {
		if !strings.Contains(notes(m), option+": expected ") {
			t.Errorf("no warning for line %s:\n%s", option, notes(m))
		}
	}

	if n, _ := m.Raw.Int("worker_threads"); n != 5 {
		t.Errorf("worker_threads %d", n)
	}
}

// Salt warns of permissions of minions that are no map, and they grant nothing.
func TestPeerOfOtherTypes(t *testing.T) {
	for in, want := range map[string]string{
		"peer: True":                    "master:1: option peer: expected a map, found the boolean true; it grants nothing",
		"peer: '.*'":                    `option peer: expected a map, found the text ".*"; it grants nothing`,
		"peer_run: 1":                   "option peer_run: expected a map, found the number 1; it grants nothing",
		"peer: [test.ping]":             "option peer: expected a map, found a list; it grants nothing",
		"peer: {'web.*': test.ping}":    `option peer: web.*: expected a list, found text: it grants nothing`,
		"peer_run: {'.*': {a: b}}":      "option peer_run: .*: expected a list, found a map: it grants nothing",
		"peer: {'web.*': [test.ping]}":  "",
		"peer: []\npeer_run: {}":        "",
		"peer_run: {'.*': [manage.up]}": "",
	} {
		m, err := loader().Load(write(t, map[string]string{"master": in + "\n"}))
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}

		n := notes(m)
		if !strings.Contains(n, want) || want == "" && strings.Contains(n, "option peer") {
			t.Errorf("%q: notes:\n%s", in, n)
		}

		if raw, ok := m.Raw.Get("peer"); strings.Contains(want, "expected a map") &&
			(m.Peer.Len()+m.PeerRun.Len() > 0 || !ok || raw == true) {
			t.Errorf("%q grants %v %v, %v", in, m.Peer, m.PeerRun, raw)
		}
	}
}

// If a file of rules is missing, Load adds a note (findings m6, F9); the master starts.
func TestReactorFile(t *testing.T) {
	here := filepath.Join(t.TempDir(), "reactor.conf")
	if err := os.WriteFile(here, []byte("[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		here:              "",
		here + ".missing": "option reactor: no event reacts before the file can be read",
	} {
		m, err := loader().Load(write(t, map[string]string{"master": "reactor: " + path + "\n"}))
		if err != nil {
			t.Fatal(err)
		}

		if n := notes(m); m.Reactor.File != path || !strings.Contains(n, want) ||
			want == "" && strings.Contains(n, "option reactor:") {
			t.Errorf("%q; notes:\n%s", m.Reactor.File, n)
		}
	}
}

func TestKeepJobsIsNamed(t *testing.T) {
	for in, want := range map[string]string{
		"keep_jobs: 24": "write keep_jobs_seconds: 86400", "keep_jobs: 72": "write keep_jobs_seconds: 259200",
		"keep_jobs: 24\nkeep_jobs_seconds: 60": "",
	} {
		m, err := loader().Load(write(t, map[string]string{"master": in + "\n"}))
		if err != nil {
			t.Fatal(err)
		}
		if n := notes(m); want == "" && strings.Contains(n, "keep_jobs") || !strings.Contains(n, want) {
			t.Errorf("%q: notes:\n%s", in, n)
		}
	}
}

func TestJobSegments(t *testing.T) {
	for in, want := range map[string]bool{
		"":                            true,
		"saltern_job_segments: true":  true,
		"saltern_job_segments: false": false,
	} {
		m, err := loader().Load(write(t, map[string]string{"master": in + "\n"}))
		if err != nil {
			t.Fatal(err)
		}
		if m.JobSegments != want {
			t.Errorf("%q: %v", in, m.JobSegments)
		}
	}
}

// notes are the warnings of a configuration.
func notes(m *Master) string {
	var b strings.Builder
	for _, n := range m.Notes {
		if n.Level >= slog.LevelWarn {
			b.WriteString(n.String() + "\n")
		}
	}
	return b.String()
}

func TestFilesAreListed(t *testing.T) {
	dir := write(t, map[string]string{"master": "include: b/*.conf\n", "master.d/a.conf": "", "b/c.conf": "x: 1\n"})
	m, err := loader().Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range []string{"master", "master.d/a.conf", "b/c.conf"} {
		want = append(want, filepath.Join(dir, f))
	}
	if strings.Join(m.Sources, " ") != strings.Join(want, " ") {
		t.Errorf("%v, want %v", m.Sources, want)
	}
}
