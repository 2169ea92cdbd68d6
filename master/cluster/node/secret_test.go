package node

import (
	"encoding/json"
	"errors"
	"flag"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/controltest"
)

var update = flag.Bool("update", false, "rewrite the recorded files of package control")

// countingRandom returns tokens that count up, and nothing else.
type countingRandom struct{ tokens int }

func (c *countingRandom) Token() string {
	c.tokens++
	return string(rune('a'+c.tokens)) + "0123456789"
}

func (c *countingRandom) NewKey() string  { return "" }
func (c *countingRandom) NewSeed() string { return "" }

func (c *countingRandom) Jitter(time.Duration) time.Duration { return 0 }

// The next secret is created once, is valid beside the current one, and replaces it only when it is
// named by its fingerprint. Each step may be repeated. A removal discards the next secret, since
// the removed machine may know it.
func TestNextSecret(t *testing.T) {
	n := &Node{cfg: Config{
		ID:     "10.0.0.1",
		Secret: "the-first-secret",
		Random: &countingRandom{},
	}}

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
			if n.acceptsSecret(&r, s) {
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

// Without cluster_secret, the secret is derived from the record, so that only a reader of the shared
// folder can join. A removal, which changes the seed, changes the secret too. Salt's masters are
// shown the option only.
func TestSecretOfTheSharedFolder(t *testing.T) {
	r := Record{Secrets: control.Secrets{Seed: "seed"}}
	removed := Record{Secrets: control.Secrets{Seed: "another seed"}}
	rotated := Record{Secrets: control.Secrets{Seed: "seed", Secret: "a rotated secret"}}
	derived := folderSecret(&r)

	for name, c := range map[string]struct {
		cfg    Config
		record Record
		shown  string
		want   bool
	}{
		"the derived one":                    {record: r, shown: derived, want: true},
		"nothing":                            {record: r},
		"the seed itself":                    {record: r, shown: "seed"},
		"that of before a removal":           {record: removed, shown: derived},
		"that of before a rotation":          {record: rotated, shown: derived},
		"the rotated one":                    {record: rotated, shown: "a rotated secret", want: true},
		"the derived one, but one is set":    {cfg: Config{Secret: "set"}, record: r, shown: derived},
		"the derived one, but none is asked": {cfg: Config{AllowEmptySecret: true}, record: r, shown: derived},
		"nothing, and none is asked":         {cfg: Config{AllowEmptySecret: true}, record: r, want: true},
	} {
		t.Run("accepts "+name, func(t *testing.T) {
			n := &Node{cfg: c.cfg}
			if got := n.acceptsSecret(&c.record, c.shown); got != c.want {
				t.Errorf("%v", got)
			}
		})
	}

	for name, c := range map[string]struct {
		cfg    Config
		record Record
		salts  bool
		want   string
	}{
		"ours":                        {record: r, want: derived},
		"ours, after a rotation":      {record: rotated, want: "a rotated secret"},
		"ours, with the option":       {cfg: Config{Secret: "set"}, record: rotated, want: "set"},
		"ours, before the record":     {},
		"Salt's":                      {cfg: Config{AllowEmptySecret: true}, record: rotated, salts: true},
		"Salt's, although one is set": {cfg: Config{Secret: "set"}, record: rotated, salts: true, want: "set"},
	} {
		t.Run("presents to a master of "+name, func(t *testing.T) {
			n := &Node{cfg: c.cfg, rec: c.record}
			if got := n.secretFor(!c.salts); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// The supervisors read the record, and their tests use the same recorded file.
func TestRecordedRecord(t *testing.T) {
	b, err := json.Marshal(Record{
		Version: 3,
		Members: []Member{{ID: "10.0.0.1", Pub: "PEM", Own: true}},
		Removed: []Tombstone{{ID: "10.0.0.2", Pub: "PEM 2", Node: "c2"}},
		Key:     "key",
		KeyGen:  1,
		KeyMade: 1,
		Secrets: control.Secrets{
			Secret:     "the-first-secret-of-all",
			NextSecret: "the-second-secret-of-all",
			Seed:       "seed",
		},
		SeedGen: 1,
	})
	if err != nil {
		t.Fatal(err)
	}

	controltest.Recorded(t, "record.json", b, *update)
}

// TestToRemove: which master a removal removes from a record, and when a removal changes nothing.
func TestToRemove(t *testing.T) {
	r := Record{Members: []Member{{ID: "10.0.0.1", Pub: "one"}, {ID: "10.0.0.2", Pub: "two"}},
		Removed: []Tombstone{{ID: "10.0.0.2", Pub: "old", Node: "c2"}, {ID: "10.0.0.8", Pub: "eight"}}}
	key := control.KeyFinger("two")
	for _, c := range []struct {
		removal control.Removal
		out     string
		change  bool
		err     error
	}{
		{control.Removal{ID: "10.0.0.2"}, "two", true, nil},
		{control.Removal{ID: "10.0.0.2", Node: "c9"}, "two", true, nil},
		{control.Removal{ID: "10.0.0.2", Node: "c2"}, "", false, nil}, // another machine has its address
		{control.Removal{ID: "10.0.0.2", Key: key, Node: "c2"}, "two", true, nil},
		{control.Removal{ID: "10.0.0.2", Key: control.KeyFinger("old"), Node: "c9"}, "", false, nil},
		{control.Removal{ID: "10.0.0.2", Key: control.NoMaster, Node: "c9"}, "", true, nil},
		{control.Removal{ID: "10.0.0.2", Key: control.NoMaster, Node: "c2"}, "", false, nil},
		{control.Removal{ID: "10.0.0.8"}, "", false, nil},
		{control.Removal{ID: "10.0.0.9", Node: "c9"}, "", false, ErrNotMember},
	} {
		m, change, err := r.toRemove(c.removal)
		if m.Pub != c.out || change != c.change || !errors.Is(err, c.err) {
			t.Errorf("%+v: %+v %v %v", c.removal, m, change, err)
		}

		after := r.clone()
		if change {
			after.buryMember(m, c.removal.Node)
		}

		if _, still := after.Member("10.0.0.2"); still != (c.out == "") {
			t.Errorf("%+v: %+v", c.removal, after)
		}
	}

	alone := Record{Members: r.Members[:1]}
	if _, _, err := alone.toRemove(control.Removal{ID: "10.0.0.1"}); !errors.Is(err, ErrLast) {
		t.Errorf("the last one: %v", err)
	}
}
