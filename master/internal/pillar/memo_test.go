package pillar

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/internal/pyframe"
	"saltern/master/value"
)

// number reads a number that a long run sets.
func number(t testing.TB, name string, usual uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// twoCompilers compile the same tree, without a memo, and with a new one for each call of on.
func twoCompilers(t testing.TB, root string) (off *Compiler, on func() (*Compiler, *memo.Store)) {
	t.Helper()
	pool := renderer.New(renderer.Config{
		Python:         []string{python(t)},
		MaxWorkers:     2,
		RequestTimeout: time.Hour,
		Overrides: value.NewMap("id", "themaster", "root_dir", root, "cachedir", root+"/cache",
			"pillar_roots", value.NewMap("base", []any{root + "/p"})),
	})

	t.Cleanup(pool.Close)
	cfg := Config{Roots: base(root + "/p"), Renderers: pool, ExtPillarFirst: true, ShowRenderErrors: true}
	return New(cfg), func() (*Compiler, *memo.Store) {
		cfg := cfg
		cfg.Memo = memo.New(memo.Config{})
		return New(cfg), cfg.Memo
	}
}

var aSecret = regexp.MustCompile(`S3CR3T-(\d+)-X`)

// TestMemoFaithful compiles random trees for many minions with and without the
// memo: pillars are the same to the byte, nobody gets a secret of somebody else,
// and what comes from chance is of one minion. SALTERN_MEMO_TREES, SALTERN_MEMO_MINIONS and
// SALTERN_MEMO_SEED set how many trees, for how many minions each, and which; with
// SALTERN_MEMO_FIRST the ones before it are left out.
func TestMemoFaithful(t *testing.T) {
	trees, seed, many := number(t, "SALTERN_MEMO_TREES", 6), number(t, "SALTERN_MEMO_SEED", 1), number(t, "SALTERN_MEMO_MINIONS", 0)
	skip := number(t, "SALTERN_MEMO_FIRST", 0)
	root := t.TempDir()
	off, newMemo := twoCompilers(t, root)
	var sum memo.Stats
	t.Logf("SALTERN_MEMO_SEED=%d, %d trees", seed, trees)
	pillars := 0
	for n := skip; n < trees; n++ {
		// Many minions get small trees: without the memo each is rendered for each of them.
		m := &treeMaker{Rand: rand.New(rand.NewPCG(seed, n)), small: many > 0 && n%20 > 0}
		files := m.files()
		minions := 2 + m.IntN(10)
		if many > 0 {
			minions = int(many)
		}

		if n%10 == 0 {
			t.Logf("tree %d: %+v", n, sum)
		}

		on, store := newMemo()
		writeTree(t, root, files)
		pillars += minions
		if !sameForAll(t, m, off, on, minions) {
			t.Fatalf("SALTERN_MEMO_SEED=%d, tree %d of %d minions:\n%s", seed, n, minions, showTree(files))
		}

		count(&sum, store.Stats())

		// Another content of a file counts at once.
		name := slices.Sorted(maps.Keys(files))[m.IntN(len(files))]
		if name == "p/top.sls" || name == "p/mapped.sls" || strings.HasSuffix(name, ".json") {
			continue // mapped.sls is not at the top of a pillar, where chance is looked for
		}

		files[name] += "\n"
		if strings.HasSuffix(name, ".sls") && !strings.Contains(name, "py") {
			files[name] = m.sls()
		}

		writeTree(t, root, files)
		pillars += min(minions, 3)
		if !sameForAll(t, m, off, on, min(minions, 3)) {
			t.Fatalf("SALTERN_MEMO_SEED=%d, tree %d with another %s:\n%s", seed, n, name, showTree(files))
		}
	}

	t.Logf("%d pillars compared: %+v", pillars, sum)
	few := trees-skip < 100 // which features they have is chance
	if sum.Hits == 0 || sum.Misses == 0 || !few && (sum.Hits < sum.Misses || sum.Hits < sum.Alone) {
		t.Errorf("the memo is not what was tested: %+v", sum)
	}
}

func count(sum *memo.Stats, s memo.Stats) {
	sum.Hits += s.Hits
	sum.Misses += s.Misses
	sum.Alone += s.Alone
}

func writeTree(t testing.TB, root string, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(root, "p")); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func showTree(files map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "--- %s\n%s", name, files[name])
	}
	return b.String()
}

// sameForAll compiles for all minions, those with the memo two at a time, and
// reports whether all is as it should be.
func sameForAll(t *testing.T, m *treeMaker, off, on *Compiler, minions int) bool {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	chance := map[string]int{}
	ok := true
	next := make(chan int)
	for range 2 {
		wg.Go(func() {
			for i := range next {
				grains, pillar := m.minion(i)
				req := Request{ID: fmt.Sprintf("min%d", i), Grains: grains, Override: pillar}
				with, without := compile(t, on, req), compile(t, off, req)
				again := with
				if minions < 50 || i%10 == 0 { // of many it is the others that find what is known
					again = compile(t, on, req)
				}

				mu.Lock()
				random := cutChance(with)
				if again != with {
					random = append(random, cutChance(again)...)
				}

				cutChance(without)
				for _, r := range random {
					if other, known := chance[r]; known {
						ok = false
						t.Errorf("minion %d has what was chance for minion %d: %s", i, other, r)
					}
					chance[r] = i
				}

				a, b := packed(t, with), packed(t, without)
				if a != b || a != packed(t, again) {
					ok = false
					t.Errorf("minion %d: with memo\n%s\nagain\n%s\nwithout\n%s", i, plainText(with),
						plainText(again), plainText(without))
				}

				for _, found := range aSecret.FindAllStringSubmatch(a, -1) {
					if found[1] != fmt.Sprint(i) {
						ok = false
						t.Errorf("minion %d has the secret of %s: %s", i, found[1], plainText(with))
					}
				}
				mu.Unlock()
			}
		})
	}

	for _, i := range m.Perm(minions) {
		next <- i
	}

	close(next)
	wg.Wait()
	return ok
}

// cutChance replaces what comes from chance, and returns it.
func cutChance(p *value.Map) (random []string) {
	for _, k := range p.Keys() {
		if strings.HasPrefix(k, "rnd") {
			random = append(random, k+"="+value.Str(p.Value(k)))
			p.Set(k, "chance")
		}
	}
	return random
}

func packed(t testing.TB, v any) string {
	t.Helper()
	b, err := pyframe.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestKeptValuesAreNotChanged: the values of YAML that Go has read are shared by all pillars for which
// templates render the same text, and merging and includes change none of them.
func TestKeptValuesAreNotChanged(t *testing.T) {
	files := map[string]string{
		"p/top.sls": "base:\n  '*':\n    - a\n    - b\n    - c\n",
		"p/a.sls":   "deep: {x: {y: [1], z: {{ grains.role }}}}\nlist: [1]\ninclude:\n  - d:\n      key: deep:x\n",
		"p/b.sls":   "deep: {x: {y: [2], w: {{ 1 + 1 }}}, __: merge-last}\nlist: [2]\n",
		"p/c.sls":   "deep: {x: {y: [3]}, v: {{ 1 }}}\nlist: [{{ 3 }}]\n",
		"p/d.sls":   "y: [0]\nu: {{ grains.role }}\n",
	}
	root := tree(t, files)
	pool := renderer.New(renderer.Config{
		Python:     []string{python(t)},
		MaxWorkers: 1,
		Overrides:  value.NewMap("root_dir", root, "id", "m", "pillar_roots", value.NewMap("base", []any{root + "/p"})),
	})
	t.Cleanup(pool.Close)
	for _, strategy := range []string{"smart", "recurse", "overwrite", "none"} {
		for _, lists := range []bool{false, true} {
			c := New(Config{Roots: base(root + "/p"), Renderers: pool, Strategy: strategy, MergeLists: lists})
			first := map[string]string{}
			for i := range 6 {
				role := []string{"web", "db"}[i%2]
				got := plainText(compile(t, c, Request{ID: "m", Grains: value.NewMap("role", role)}))
				if want, known := first[role]; known && got != want {
					t.Errorf("%s, lists %v: pillar %d of %s is\n%s\nthe first was\n%s", strategy, lists, i, role, got, want)
				} else if !known {
					first[role] = got
				}
			}
		}
	}
}
