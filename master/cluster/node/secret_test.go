package node

import (
	"encoding/json"
	"errors"
	"flag"
	"testing"
	"time"

	"saltern/control"
	"saltern/control/controltest"
)

var update = flag.Bool("update", false, "rewrite the recorded files of package control")

// The next secret is made once, counts beside the present one, and takes its
// place only by its own name; each step may be repeated. A removal makes an
// end of it: who was removed may know it.
func TestNextSecret(t *testing.T) {
	made := 0
	n := &Node{cfg: Config{ID: "10.0.0.1", Secret: "the-first-secret", Token: func() string { made++; return string(rune('a'+made)) + "0123456789" },
		NewKey: func() string { return "" }, NewSeed: func() string { return "" }}}
	r := Record{Secrets: control.Secrets{Seed: "seed"}, Members: []Member{{ID: "10.0.0.1"}, {ID: "10.0.0.2"}}}
	do := func(c Command) error {
		n.queue = nil
		if c.Remove.ID != "" {
			n.removeMember(time.Time{}, c)
		} else {
			n.changeSecret(time.Time{}, c)
		}
		_, err := n.queue[0].apply(&r)
		return err
	}
	takes := func(want string, secrets ...string) {
		t.Helper()
		got := ""
		for _, s := range secrets {
			if n.takes(&r, s) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != want {
			t.Errorf("taken of %q: %s, want %s", secrets, got, want)
		}
	}
	takes("yn", "the-first-secret", "")
	if err := do(Command{Stage: true}); err != nil || r.NextSecret == "" || r.Secret != "" {
		t.Fatalf("%v %+v", err, r)
	}
	next := r.NextSecret
	if err := do(Command{Stage: true}); err != nil || r.NextSecret != next {
		t.Fatalf("a second time: %v %+v", err, r)
	}
	takes("yyn", "the-first-secret", next, "")
	if err := do(Command{Commit: r.SecretFinger("another")}); !errors.Is(err, ErrNotStaged) {
		t.Errorf("by another name: %v", err)
	}
	for range 2 {
		if err := do(Command{Commit: r.SecretFinger(next)}); err != nil || r.Secret != next || r.NextSecret != "" {
			t.Fatalf("%v %+v", err, r)
		}
	}
	takes("nyn", "the-first-secret", next, "")
	_ = do(Command{Stage: true})
	staged, finger := r.NextSecret, r.SecretFinger(r.NextSecret)
	if err := do(Command{Remove: control.Removal{ID: "10.0.0.2"}}); err != nil || r.NextSecret != "" {
		t.Fatalf("%v %+v", err, r)
	}
	takes("nnny", next, staged, "", r.Secret)
	if err := do(Command{Commit: finger}); !errors.Is(err, ErrNotStaged) {
		t.Errorf("after a removal: %v", err)
	}
}

// What the supervisors read of the record: the recorded file is theirs as well.
func TestRecordedRecord(t *testing.T) {
	b, err := json.Marshal(Record{Version: 3, Members: []Member{{ID: "10.0.0.1", Pub: "PEM", Own: true}}, Removed: []Tombstone{{ID: "10.0.0.2", Pub: "PEM 2", Node: "c2"}}, Key: "key", KeyGen: 1, KeyMade: 1,
		Secrets: control.Secrets{Secret: "the-first-secret-of-all", NextSecret: "the-second-secret-of-all", Seed: "seed"}, SeedGen: 1})
	if err != nil {
		t.Fatal(err)
	}
	controltest.Recorded(t, "record.json", b, *update)
}
