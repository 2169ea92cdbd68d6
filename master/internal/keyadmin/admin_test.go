package keyadmin

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// ring is a Ring whose effects are recorded.
type ring struct {
	*Ring
	t       *testing.T
	dir     string
	events  []*value.Map
	rotated int
	forgot  []string
	fail    error // of rotation and clearing
}

func pem(t testing.TB, name string) string {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join("../../testdata/wire/keys", name+"_TESTONLY.pem"), "")
	check.Must(t, err)
	text, err := crypt.PublicPEM(&k.PublicKey)
	check.Must(t, err)
	return text
}

// newRing has accepted a1 and Web2, pending p1 and p2, rejected r1, denied d1
// (beside an accepted d1) and the master's own files.
func newRing(t *testing.T) *ring {
	t.Helper()
	r := &ring{t: t, dir: t.TempDir()}
	store, err := keys.Open(r.dir, keys.Config{Create: true})
	check.Must(t, err)

	for id, st := range map[string]keys.State{
		"a1":   keys.Accepted,
		"Web2": keys.Accepted,
		"p1":   keys.Pending,
		"p2":   keys.Pending,
		"r1":   keys.Rejected,
		"d1":   keys.Accepted,
	} {
		check.Must(t, store.Put(id, st, pem(t, "min6")))
	}

	check.Must(t, store.Deny("d1", pem(t, "min7")))
	for _, n := range []string{"master.pem", "master.pub", "Alpha.pub", "notes.txt"} {
		check.Must(t, os.WriteFile(filepath.Join(r.dir, n), []byte("-----BEGIN X-----\n"+n+"\n-----END X-----\n"), 0o600))
	}

	r.Ring = &Ring{
		Store: store, Dir: r.dir, HashType: "sha256",
		Fire: func(tag string, data *value.Map) error {
			if tag != "salt/key" {
				t.Errorf("tag %q", tag)
			}
			r.events = append(r.events, data)
			return nil
		},
		Rotate: func() error { r.rotated++; return r.fail },
		Forget: func(id string) error { r.forgot = append(r.forgot, id); return r.fail },
	}

	return r
}

// show writes an answer as "minions=a,b minions_pre=c".
func show(m *value.Map) string {
	var out []string
	for k, v := range m.All() {
		var ids []string
		switch v := v.(type) {
		case []any:
			for _, id := range v {
				ids = append(ids, fmt.Sprint(id))
			}
		case *value.Map:
			ids = v.Keys()
		}

		out = append(out, fmt.Sprintf("%v=%s", k, strings.Join(ids, ",")))
	}

	return strings.Join(out, " ")
}

// told is what the events say, and how often the key was rotated.
func (r *ring) told() string {
	var out []string
	for _, e := range r.events {
		s := e.Str("act") + " " + e.Str("id")
		if !e.Bool("result") {
			s += " no result"
		}

		if p := e.Str("pub"); p != "" {
			s += map[bool]string{true: "", false: " other key"}[p == pem(r.t, "min6")]
		} else if e.Str("act") != "delete" {
			s += " no key"
		}

		out = append(out, s)
	}

	slices.Sort(out)
	s := fmt.Sprintf("%s; rotated %d; forgot %s", strings.Join(out, ", "), r.rotated, strings.Join(r.forgot, ","))
	r.events = nil
	r.rotated = 0
	r.forgot = nil

	return s
}

const start = "minions_pre=p1,p2 minions_rejected=r1 minions=a1,d1,Web2 minions_denied=d1"

func TestList(t *testing.T) {
	r := newRing(t)
	for _, link := range []string{"link.pem", "link.pub"} { // as Salt 3008 makes of master.pem
		check.Must(t, os.Symlink("master"+filepath.Ext(link), filepath.Join(r.Dir, link)))
	}

	if got := show(r.List()); got != start {
		t.Errorf("list: %s", got)
	}

	all, err := r.All()
	check.Must(t, err)
	if got := show(all); got != start+" local=Alpha.pub,master.pem,master.pub" {
		t.Errorf("all: %s", got)
	}

	for name, want := range map[string]string{
		"acc": "minions=a1,d1,Web2", "accepted": "minions=a1,d1,Web2", "pre": "minions_pre=p1,p2", "un": "minions_pre=p1,p2", "unaccepted": "minions_pre=p1,p2",
		"rej": "minions_rejected=r1", "rejected": "minions_rejected=r1", "den": "minions_denied=d1", "denied": "minions_denied=d1", "all": show(all), "": "", "x": "", "ALL": "",
	} {
		got, err := r.Status(name)
		if err != nil || show(got) != want {
			t.Errorf("status %q: %s, %v", name, show(got), err)
		}
	}
}

func TestMatch(t *testing.T) {
	r := newRing(t)
	for _, c := range []struct {
		match any
		full  bool
		want  string
	}{
		{"*", false, start}, {"a1", false, "minions=a1"}, {"d1", false, "minions=d1 minions_denied=d1"}, {"?1", false, "minions_pre=p1 minions_rejected=r1 minions=a1,d1 minions_denied=d1"},
		{"p*", false, "minions_pre=p1,p2"}, {"a1,p2", false, "minions_pre=p2 minions=a1"}, {[]any{"a1", "r*"}, false, "minions_rejected=r1 minions=a1"}, {[]string{"a1"}, false, "minions=a1"},
		{"web2", false, ""}, {"[pr]1", false, "minions_pre=p1 minions_rejected=r1"}, {"nobody", false, ""}, {"", false, ""}, {nil, false, ""}, {int64(1), false, ""}, {[]any{int64(1)}, false, ""},
		{"master*", false, ""}, {"master*", true, "local=master.pem,master.pub"}, {"../minions/a1", true, ""},
	} {
		got, err := r.Match(c.match, c.full)
		if err != nil || show(got) != c.want {
			t.Errorf("%v: %s, %v", c.match, show(got), err)
		}
	}
}

func TestChanges(t *testing.T) {
	all := func(k ...any) Selection { return Selection{Dict: value.NewMap(k...)} }
	l := func(ids ...any) []any { return ids }
	for _, c := range []struct {
		name         string
		do           func(*ring) (*value.Map, error)
		answer, told string
		list         string // "" for unchanged
	}{
		{"accept a pending key",
			func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "p1"}, false, false) },
			"minions=p1", "accepted p1; rotated 0; forgot ", "minions_pre=p2 minions_rejected=r1 minions=a1,d1,p1,Web2 minions_denied=d1"},
		{"accept all leaves rejected and denied",
			func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "*"}, false, false) },
			"minions_rejected=r1 minions=a1,d1,p1,p2,Web2 minions_denied=d1", "accepted p1, accepted p2; rotated 0; forgot ", "minions_pre= minions_rejected=r1 minions=a1,d1,p1,p2,Web2 minions_denied=d1"},
		{"accept rejected", func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "r1"}, true, false) },
			"minions=r1", "accepted r1; rotated 0; forgot ", "minions_pre=p1,p2 minions_rejected= minions=a1,d1,r1,Web2 minions_denied=d1"},
		{"accept rejected, not asked to",
			func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "r1"}, false, true) },
			"minions_rejected=r1", "; rotated 0; forgot ", ""},
		{"accept denied replaces the key",
			func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "d1"}, false, true) },
			"minions=d1", "accepted d1 other key; rotated 0; forgot ", "minions_pre=p1,p2 minions_rejected=r1 minions=a1,d1,Web2 minions_denied="},
		{"accept denied, not asked to",
			func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "d1"}, true, false) },
			"minions=d1 minions_denied=d1", "; rotated 0; forgot ", ""},
		{"accept nobody",
			func(r *ring) (*value.Map, error) { return r.Accept(Selection{Match: "nobody"}, true, true) },
			"", "; rotated 0; forgot ", ""},
		{"accept by list", func(r *ring) (*value.Map, error) {
			return r.Accept(all("minions_pre", l("p2", "gone")), false, false)
		},
			"minions=p2", "accepted p2; rotated 0; forgot ", "minions_pre=p1 minions_rejected=r1 minions=a1,d1,p2,Web2 minions_denied=d1"},
		{"a list names the wrong folder",
			func(r *ring) (*value.Map, error) { return r.Accept(all("minions_pre", l("r1")), true, true) },
			"minions_rejected=r1", "; rotated 0; forgot ", ""},
		{"a list names no folder", func(r *ring) (*value.Map, error) {
			return r.Delete(all("../minions", l("a1"), "local", l("master.pem"), int64(1), l("a1")), false)
		}, "minions=a1,a1", "; rotated 1; forgot ", ""},
		{"reject a pending key",
			func(r *ring) (*value.Map, error) { return r.Reject(Selection{Match: "p1"}, false, false) },
			"minions_rejected=p1", "rejected p1; rotated 1; forgot ", "minions_pre=p2 minions_rejected=p1,r1 minions=a1,d1,Web2 minions_denied=d1"},
		{"reject accepted", func(r *ring) (*value.Map, error) { return r.Reject(Selection{Match: "a1"}, true, false) },
			"minions_rejected=a1", "rejected a1; rotated 1; forgot ", "minions_pre=p1,p2 minions_rejected=a1,r1 minions=d1,Web2 minions_denied=d1"},
		{"reject accepted, not asked to",
			func(r *ring) (*value.Map, error) { return r.Reject(Selection{Match: "a1"}, false, true) },
			"minions=a1", "; rotated 1; forgot ", ""},
		{"delete an accepted key", func(r *ring) (*value.Map, error) { return r.Delete(Selection{Match: "a1"}, false) },
			"", "delete a1; rotated 1; forgot a1", "minions_pre=p1,p2 minions_rejected=r1 minions=d1,Web2 minions_denied=d1"},
		{"delete and preserve the cache",
			func(r *ring) (*value.Map, error) { return r.Delete(Selection{Match: "a1"}, true) },
			"", "delete a1; rotated 1; forgot ", "minions_pre=p1,p2 minions_rejected=r1 minions=d1,Web2 minions_denied=d1"},
		{"delete only the denied key",
			func(r *ring) (*value.Map, error) { return r.Delete(all("minions_denied", l("d1")), false) },
			"minions=d1", "delete d1; rotated 1; forgot ", "minions_pre=p1,p2 minions_rejected=r1 minions=a1,d1,Web2 minions_denied="},
		{"delete both keys of an id",
			func(r *ring) (*value.Map, error) { return r.Delete(Selection{Match: "d1"}, false) },
			"", "delete d1, delete d1; rotated 1; forgot d1,d1", "minions_pre=p1,p2 minions_rejected=r1 minions=a1,Web2 minions_denied="},
		{"delete pending by glob", func(r *ring) (*value.Map, error) { return r.Delete(Selection{Match: "p?"}, false) },
			"", "delete p1, delete p2; rotated 1; forgot p1,p2", "minions_pre= minions_rejected=r1 minions=a1,d1,Web2 minions_denied=d1"},
		{"delete nobody",
			func(r *ring) (*value.Map, error) { return r.Delete(Selection{Match: "nobody"}, false) }, "",
			"; rotated 1; forgot ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRing(t)
			got, err := c.do(r)
			if err != nil {
				t.Fatal(err)
			}

			if show(got) != c.answer {
				t.Errorf("answer %q, want %q", show(got), c.answer)
			}

			if told := r.told(); told != c.told {
				t.Errorf("told %q, want %q", told, c.told)
			}

			if c.list == "" {
				c.list = start
			}

			if list := show(r.List()); list != c.list {
				t.Errorf("keys %s, want %s", list, c.list)
			}

			// The folders say the same as the store.
			check.Must(t, r.Store.Rescan())
			if list := show(r.List()); list != c.list {
				t.Errorf("after a scan %s", list)
			}

			if b, err := os.ReadFile(filepath.Join(r.dir, "master.pem")); err != nil || len(b) == 0 {
				t.Error("the master's own key", err)
			}
		})
	}
}

// A file that is no key may lie in a folder; it must not become accepted.
func TestAttack18NoKeyIsAccepted(t *testing.T) {
	r := newRing(t)
	bad := map[string]string{
		"junk":    "not a key",
		"private": "",
		"empty":   "",
		"weak":    "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzQwJECAwEAAQ==\n-----END PUBLIC KEY-----",
	}

	priv, err := os.ReadFile("../../testdata/wire/keys/min8_TESTONLY.pem")
	check.Must(t, err)
	bad["private"] = string(priv)
	for id, text := range bad {
		check.Must(t, os.WriteFile(filepath.Join(r.dir, "minions_pre", id), []byte(text), 0o600))
	}

	check.Must(t, r.Store.Rescan())
	_, err = r.Accept(Selection{Match: "*"}, false, false)
	if !errors.Is(err, errInvalid) {
		t.Errorf("error %v", err)
	}

	for id := range bad {
		if e, ok := r.Store.Lookup(id); ok && e.State == keys.Accepted {
			t.Errorf("%s is accepted", id)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "minions", id)); err == nil {
			t.Errorf("minions/%s exists", id)
		}
	}

	// The others of the same call are.
	if told := r.told(); told != "accepted p1, accepted p2; rotated 0; forgot " {
		t.Errorf("told %q", told)
	}
}

// Failures of what goes along with a change are reported, and do not stop it.
func TestFailuresAreReported(t *testing.T) {
	r := newRing(t)
	r.fail = errors.New("disk is gone")
	if _, err := r.Delete(Selection{Match: "a1,p1"}, false); !errors.Is(err, r.fail) {
		t.Errorf("delete: %v", err)
	}

	if got := show(r.List()); got != "minions_pre=p2 minions_rejected=r1 minions=d1,Web2 minions_denied=d1" {
		t.Errorf("keys %s", got)
	}

	if _, err := r.Reject(Selection{Match: "p2"}, false, false); !errors.Is(err, r.fail) {
		t.Errorf("reject: %v", err)
	}

	check.Must(t, os.RemoveAll(r.dir))
	if _, err := r.All(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("all: %v", err)
	}
}

func TestTextAndFinger(t *testing.T) {
	r := newRing(t)
	text, err := r.Text("*1")
	check.Must(t, err)
	if got := show(text); got != "minions_pre=p1 minions_rejected=r1 minions=a1,d1 minions_denied=d1" {
		t.Errorf("text of %s", got)
	}

	if text.Map("minions").Str("d1") != pem(t, "min6") || text.Map("minions_denied").Str("d1") != pem(t, "min7") {
		t.Error("the texts of d1 are mixed up")
	}

	// The fingerprint is the hash of the lines between the first and the last,
	// with their ends (salt/utils/crypt.py pem_finger).
	body := strings.Split(pem(t, "min6"), "\n")
	joined := strings.Join(body[1:len(body)-1], "\n") + "\n"
	s256, m5 := sha256.Sum256([]byte(joined)), md5.Sum([]byte(joined))
	for hash, sum := range map[string][]byte{"": s256[:], "sha256": s256[:], "md5": m5[:]} {
		f, err := r.Finger("a1", hash)
		check.Must(t, err)
		pairs := slices.Collect(slices.Chunk([]byte(hex.EncodeToString(sum)), 2))
		var want []string
		for _, p := range pairs {
			want = append(want, string(p))
		}

		if got := f.Map("minions").Str("a1"); got != strings.Join(want, ":") {
			t.Errorf("%q: %s", hash, got)
		}
	}

	f, err := r.Finger("*", "")
	check.Must(t, err)
	if f.Map("minions").Str("d1") == f.Map("minions_denied").Str("d1") {
		t.Error("the denied key has the fingerprint of the accepted one")
	}

	m, err := r.FingerMaster("")
	check.Must(t, err)
	if got := show(m); got != "local=Alpha.pub,master.pem,master.pub" {
		t.Errorf("master: %s", got)
	}

	if _, err := r.Finger("a1", "crc32"); err == nil {
		t.Error("unknown hash type")
	}
}

func TestParseStatus(t *testing.T) {
	for _, st := range []keys.State{keys.Accepted, keys.Pending, keys.Rejected, keys.Denied} {
		if got, ok := parseStatus(st.Dir()); !ok || got != st {
			t.Errorf("%s: %v", st.Dir(), got)
		}
	}
	for _, n := range []string{"", "local", "minions_autosign", "../minions", "Minions"} {
		if got, ok := parseStatus(n); ok || got != keys.None {
			t.Errorf("%q: %v", n, got)
		}
	}
}
