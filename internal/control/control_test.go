package control

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What an earlier master wrote, with a bad pillar and a full disk behind it.
func TestStatusOfAnEarlierMaster(t *testing.T) {
	s, err := ReadStatus("testdata/status-1.json")
	if err != nil {
		t.Fatal(err)
	}

	if s.Accepted != 1 || s.Pending != 1 || s.Requests == 0 || s.PID == 0 || s.Written.IsZero() || s.PillarFaulty != 1 {
		t.Errorf("%+v", s)
	}

	if e := s.PillarError; e == nil || e.Minion != "web1" ||
		!strings.Contains(e.Text, "Rendering SLS 'broken' failed") || e.At.IsZero() {
		t.Errorf("%+v", e)
	}

	if len(s.Problems) != 1 || s.Problems[0].What != JobCacheFault ||
		!strings.Contains(s.Problems[0].Text, "no space left on device") {
		t.Errorf("%+v", s.Problems)
	}
}

func TestStatusFresh(t *testing.T) {
	now := time.Now()
	s := &Status{PID: 7, Written: now}
	for _, c := range []struct {
		s    *Status
		at   time.Duration
		pid  int
		want bool
	}{
		{nil, 0, 7, false}, {s, 0, 7, true}, {s, StatusStale, 7, true}, {s, StatusStale + 1, 7, false}, {s, 0, 8, false},
		{&Status{Written: now}, 0, 0, false},
	} {
		if got := c.s.Fresh(now.Add(c.at), c.pid); got != c.want {
			t.Errorf("%+v at %s for %d: %v", c.s, c.at, c.pid, got)
		}
	}
}

// The folder belongs to the master's account: what lies there under the name
// of the status file can be anything.
func TestStatusOfAHostileMaster(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("secret", `{"schema":1,"pid":1}`)
	write("huge", `{"schema":1,"id":"`+strings.Repeat("x", MaxStatus)+`"}`)
	write("half", `{"schema":1,"pi`)
	write("other", `{"schema":2}`)
	write("types", `{"schema":1,"pid":"root"}`)
	write("text", "root:$6$hash")
	write("deep", strings.Repeat("[", MaxStatus))

	if err := errors.Join(os.Symlink("secret", path("link")), syscall.Mkfifo(path("pipe"), 0o600),
		os.Mkdir(path("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"huge", "half", "other", "types", "text", "deep", "link", "pipe", "folder", "none"} {
		s, err := ReadStatus(path(name))
		if err == nil || s != nil {
			t.Errorf("%s is taken: %+v", name, s)
		} else if strings.Contains(err.Error(), "hash") || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}

		if (name == "none") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}

	write("wild", `{"schema":1,"oldest_request_ms":-5,"pillar_error_minions":-1,"problems":[`+strings.Repeat(`{"what":"a\u001b[2J\nb","text":"`+strings.Repeat("y", 1000)+`"},`, 40)+`{}],
		"last_pillar_error":{"minion":"\u009bm","text":"one\n  two\u202e"}}`)
	s, err := ReadStatus(path("wild"))
	if err != nil {
		t.Fatal(err)
	}

	if len(s.Problems) != MaxProblems || s.Problems[0].What != "a b" || len(s.Problems[0].Text) > 310 ||
		s.OldestMillis != 0 || s.PillarFaulty != 0 {
		t.Errorf("%d problems, first %+v, %d %d", len(s.Problems), s.Problems[0], s.OldestMillis, s.PillarFaulty)
	}

	if e := s.PillarError; e.Minion != "?m" || e.Text != "one two?" {
		t.Errorf("%+v", e)
	}
}

func FuzzStatus(f *testing.F) {
	b, err := os.ReadFile("testdata/status-1.json")
	if err != nil {
		f.Fatal(err)
	}

	f.Add(b)
	f.Add([]byte(`{"schema":1,"last_pillar_error":{"text":"\u001b[2J"},"problems":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStatus(b)
		if err != nil {
			return
		}

		for _, p := range s.Problems {
			if strings.ContainsAny(string(p.What)+p.Text, "\x1b\n\r") || len(p.Text) > 310 {
				t.Errorf("%+v", p)
			}
		}

		if s.PillarError != nil && strings.ContainsAny(s.PillarError.Text, "\x1b\n\r") {
			t.Errorf("%+v", s.PillarError)
		}
	})
}

// Masters and supervisors of all versions name a secret in the same way.
func TestSecretFinger(t *testing.T) {
	if got := (Secrets{Seed: "seed"}).SecretFinger("the-first-secret-of-all"); got != "k18c6db13d963ec32" {
		t.Errorf("%s", got)
	}
	if (Secrets{}).SecretFinger("the-first-secret-of-all") != "" || (Secrets{Seed: "seed"}).SecretFinger("") != "" {
		t.Error("something out of nothing")
	}
}

// A record that cannot be read is not quoted: it holds secrets.
func TestDamagedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), RecordFile)
	for _, text := range []string{`{"secret": "sh`, `{"secret": ["hush"]}`, `hush`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := ReadRecord(path); err == nil || s.Secrets != (Secrets{}) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %+v %v", text, s, err)
		}
	}
}
