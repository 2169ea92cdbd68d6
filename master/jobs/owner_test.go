package jobs

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"saltern/master/value"
	"saltern/test/check"
)

// TestContinues: the next part of a job is recognised after the job was stored, and nothing else
// is, for arguments of all kinds.
func TestContinues(t *testing.T) {
	t.Parallel()
	c := open(t, Config{})
	r := rand.New(rand.NewPCG(10, 2026))
	var odd func(depth int) any
	odd = func(depth int) any {
		switch n := r.IntN(10); {
		case n == 0:
			return nil
		case n == 1:
			return r.IntN(2) == 0
		case n == 2:
			return r.Int64() - r.Int64()
		case n == 3:
			return r.Uint64()
		case n == 4:
			return []float64{math.NaN(), math.Inf(1), 0.1, 1, math.Copysign(0, -1)}[r.IntN(5)]
		case n == 5:
			return []byte{0xff, byte(r.IntN(256))}
		case n < 8 && depth > 0:
			return []any{odd(depth - 1), odd(depth - 1)}
		case n < 9 && depth > 0:
			return value.NewMap("__kwarg__", true, fmt.Sprint(r.IntN(9)), odd(depth-1))
		}

		return []string{"", "x", "é", "1", "True"}[r.IntN(5)]
	}

	for i := range 300 {
		args := []any{odd(3), odd(3)}
		jid := fmt.Sprintf("20261123011500%06d", i)
		load := value.NewMap("jid", jid, "fun", "cmd.run", "arg", args, "user", "alice", "tgt",
			[]any{"web1"}, AccountField, "ldap/alice", ChosenField, true)
		_, err := c.Stage(context.Background(), jid, load, []string{"web1"})
		check.Must(t, err)
		kept, err := c.Load(context.Background(), jid)
		check.Must(t, err)
		next := load.Clone()
		next.Set("tgt", []any{"web2"})

		if !Continues(next, kept) {
			t.Fatalf("%d: %s does not go on as %s", i, value.Repr(next), value.Repr(kept))
		}

		for field, v := range map[string]any{
			"fun":        "test.ping",
			"arg":        append([]any{odd(2)}, args...),
			"user":       "bob",
			AccountField: "file/alice",
		} {
			other := next.Clone()
			other.Set(field, v)
			if Continues(other, kept) {
				t.Errorf("%d: with another %s it goes on", i, field)
			}
		}
	}

	kept := value.NewMap("fun", []any{"a.b", "c.d"}, "arg", []any{[]any{int64(1)}, []any{}}, "user", "root")
	for _, c := range []struct {
		load *value.Map
		want bool
	}{
		{value.NewMap("fun", []any{"a.b", "c.d"}, "arg", []any{[]any{int64(1)}, []any{}}, "user", "root"), true},
		{value.NewMap("fun", []any{"a.b", "c.d"}, "arg", []any{[]any{true}, []any{}}, "user", "root"), false},
		{value.NewMap("fun", []any{"a.b"}, "arg", []any{[]any{int64(1)}, []any{}}, "user", "root"), false},
		{value.NewMap(), false},
	} {
		if Continues(c.load, kept) != c.want {
			t.Errorf("%s goes on: %v", value.Repr(c.load), !c.want)
		}
	}

	ofReturn := value.NewMap("fun", "test.ping", "fun_args", []any{"x"}, "return", true, "user", "root")
	if !Continues(value.NewMap("fun", "test.ping", "arg", []any{"x"}, "user", "root"), ofReturn) ||
		Continues(value.NewMap("fun", "test.ping", "arg", []any{"y"}, "user", "root"), ofReturn) {
		t.Error("the load that a return has made")
	}
}

// TestFolderKeepsTheHigherRank: if two masters have started jobs with one id, every master that
// reads both from the folder keeps the same one, in whatever order they arrive. The two masters
// keep that one as well.
func TestFolderKeepsTheHigherRank(t *testing.T) {
	t.Parallel()
	made := value.NewMap("jid", jid1, "fun", "state.apply", "arg", []any{}, "user", "root")
	ofRoot := value.NewMap("jid", jid1, "fun", "cmd.run", "arg", []any{}, "user", "root", ChosenField, true)
	ofAlice := value.NewMap("jid", jid1, "fun", "test.ping", "arg", []any{}, "user", "alice", ChosenField,
		true, AccountField, "ldap/alice")
	for name, c := range map[string]struct{ first, second, wins *value.Map }{
		"root after alice":                {ofAlice, ofRoot, ofRoot},
		"alice after root":                {ofRoot, ofAlice, ofRoot},
		"a master's id after alice":       {ofAlice, made, made},
		"a master's id after root":        {ofRoot, made, made},
		"alice after a job of the master": {made, ofAlice, made},
	} {
		t.Run(name, func(t *testing.T) {
			shared := t.TempDir()
			a := member(t, "10.0.0.1", shared, t.TempDir())
			b := member(t, "10.0.0.2", shared, t.TempDir())
			a.peers.err, b.peers.err = ErrNoPeer, ErrNoPeer
			check.Must(t, a.SaveLoad(context.Background(), jid1, c.first.Clone(), []string{"m1"}))
			check.Must(t, a.save("m1", "one")) // hands over what waits
			check.Must(t, b.SaveLoad(context.Background(), jid1, c.second.Clone(), []string{"m2"}))
			check.Must(t, b.save("m2", "two"))
			late := member(t, "10.0.0.3", shared, t.TempDir())
			for _, m := range []*fellow{a, b, late} {
				check.Must(t, m.Import(context.Background()))
				load, err := m.Load(context.Background(), jid1)
				if err != nil || load.Str("fun") != c.wins.Str("fun") {
					t.Errorf("%s keeps %s of %s, %v", m.cfg.ID, load.Str("fun"), load.Str("user"), err)
				}
			}
		})
	}
}
