package pillar

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"

	"saltern/master/internal/pillar/memo"
	"saltern/master/value"
)

// leaker makes grains that are nearly the same for all minions, with a secret of
// the minion at places that differ, and templates that read such places.
type leaker struct{ *rand.Rand }

var leakKeys = []string{"a", "b", "c", "d", "items", "get"}

func (l *leaker) path() []string {
	p := make([]string, 1+l.IntN(3))
	for i := range p {
		p[i] = leakKeys[l.IntN(len(leakKeys))]
	}
	return p
}

// values makes the level below a place; seed decides what all minions have there, own
// what this one has.
func (l *leaker) values(seed uint64, own *rand.Rand, secret, at string) *value.Map {
	m := value.NewMap()
	for _, k := range leakKeys {
		place := at + "/" + k
		h := fnv.New64()
		h.Write([]byte(place))
		same := rand.New(rand.NewPCG(seed, h.Sum64()))
		kind := same.IntN(8)
		if own.IntN(80) == 0 {
			kind = []int{8, 8, 0, 3, 7}[own.IntN(5)]
		}

		switch {
		case kind < 3 && strings.Count(place, "/") < 4:
			m.Set(k, l.values(seed, own, secret, place))
		case kind < 5:
			m.Set(k, fmt.Sprint("v", same.IntN(2)))
		case kind == 5:
			m.Set(k, []any{"x", int64(same.IntN(2))})
		case kind > 7:
			m.Set(k, []any{secret, value.NewMap("a", secret)}[own.IntN(2)])
		}
	}

	return m
}

// read is an expression that reads a place.
func (l *leaker) read() string {
	p := l.path()
	joined := strings.Join(p, ":")
	switch l.IntN(8) {
	case 0:
		return fmt.Sprintf("grains.get('%s', 'none')", p[0])
	case 1:
		return fmt.Sprintf("salt['grains.get']('%s', 'none')", joined)
	case 2:
		return fmt.Sprintf("salt.pillar.get('%s', 'none')", joined)
	case 3:
		return fmt.Sprintf("(grains['%s'] | default('none'))", p[0])
	case 4:
		return fmt.Sprintf("pillar.get('%s', {})", p[0])
	case 5:
		return fmt.Sprintf("('%s' in grains)", p[0])
	case 6:
		return fmt.Sprintf("salt['grains.has_value']('%s')", joined)
	}

	return fmt.Sprintf("salt['pillar.get']('%s', {'a': 'd'}, merge=True)", joined)
}

func (l *leaker) sls() string {
	var b strings.Builder
	for i := range 1 + l.IntN(4) {
		switch l.IntN(3) {
		case 0:
			fmt.Fprintf(&b, "k%d: {{ %s | tojson }}\n", i, l.read())
		case 1:
			fmt.Fprintf(&b,
				"{%% if %s == %s %%}\nk%d: {{ %s | tojson }}\n{%% else %%}\nk%d: {{ %s | yaml }}\n{%% endif %%}\n",
				l.read(), l.read(), i, l.read(), i, l.read())
		default:
			fmt.Fprintf(&b,
				"{%% if %s is mapping or %s is string %%}\nk%d: {{ [%s, %s] | tojson }}\n{%% endif %%}\n",
				l.read(), l.read(), i, l.read(), l.read())
		}
	}

	return b.String()
}

// TestMemoLeaks puts a secret of each minion somewhere into grains and pillars that
// are nearly the same, has templates look around there, and looks for secrets of
// others. What a minion gets is also what it gets without the memo. The variables are
// those of TestMemoFaithful.
func TestMemoLeaks(t *testing.T) {
	trees, seed := number(t, "SALTERN_MEMO_TREES", 10), number(t, "SALTERN_MEMO_SEED", 1)
	root := t.TempDir()
	off, newMemo := twoCompilers(t, root)
	var s memo.Stats
	t.Logf("SALTERN_MEMO_SEED=%d, %d trees", seed, trees)

	for n := range trees {
		l := &leaker{rand.New(rand.NewPCG(seed, n))}
		files := map[string]string{"p/top.sls": "base:\n  '*': [s0, s1]\n", "p/s0.sls": l.sls(), "p/s1.sls": l.sls()}
		writeTree(t, root, files)
		on, store := newMemo()
		for i := range 12 {
			secret := secretOf(i)
			made := func(what uint64) *value.Map {
				return l.values(seed+what+10*n, rand.New(rand.NewPCG(seed+what, n*1000+uint64(i))), secret, "")
			}
			req := func() Request { return Request{ID: fmt.Sprint("min", i), Grains: made(1), Override: made(2)} }
			with, without := packed(t, compile(t, on, req())), packed(t, compile(t, off, req()))
			for _, found := range aSecret.FindAllStringSubmatch(with, -1) {
				if found[0] != secret {
					t.Fatalf("SALTERN_MEMO_SEED=%d, tree %d: minion %d has %s\n%s\n%s", seed, n, i, found[0],
						plainText(compile(t, on, req())), showTree(files))
				}
			}

			if with != without {
				t.Fatalf("SALTERN_MEMO_SEED=%d, tree %d, minion %d: with memo\n%s\nwithout\n%s\n%s", seed, n,
					i, plainText(compile(t, on, req())), plainText(compile(t, off, req())),
					showTree(files))
			}
		}

		count(&s, store.Stats())
	}

	t.Logf("%+v", s)
	if s.Alone > s.Misses || s.Hits < s.Misses/5 {
		t.Errorf("the memo is not what was tested: %+v", s)
	}
}
