package tui

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/test/screen"
)

// TestMain has more terminals drawn on at a time than there are processors: most of
// their time is waiting for the next look.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6")
	os.Exit(m.Run())
}

// number is that of a variable of the environment, for longer walks by hand.
func number(variable string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(variable), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// stroke is something that happens at a keyboard: bytes, and the keys that they are.
type stroke struct {
	sent string
	keys int
}

// strokes are those of a walk. None of them ends a page: no Ctrl-C, no y.
var strokes = []stroke{
	{up, 1}, {down, 1}, {down, 1}, {"\x1bOA", 1}, {"\x1bOB", 1}, {"\x1b[C", 1}, {"\x1b[D", 1}, {pgUp, 1}, {pgDn, 1},
	{tab, 1}, {tab, 1}, {"\x1b[Z", 1}, {"\x1b\t", 1}, {enter, 1}, {enter, 1}, {"\r\n", 1}, {escape, 1},
	{"\x1b[[A", 1}, {"\x1bOP", 1}, {"\x1b[11~", 1}, {"\x07", 1}, {"?", 1}, {repaintAll, 0},
	{"\x1b[1~", 1}, {"\x1b[4~", 1}, {"\x1b[3~", 1}, {"\x7f", 1}, {"\x15", 1}, {"\x01", 1}, {"\x05", 1}, {"\x0b", 1}, {"\x14", 1},
	{"1", 1}, {"2", 1}, {"3", 1}, {"5", 1}, {"8", 1}, {"9", 1}, {"0", 1}, {"m", 1}, {"k", 1}, {"j", 1}, {"r", 1}, {"n", 1}, {"s", 1}, {"t", 1}, {"c", 1},
	{"10.0.0.9", 8}, {"/24", 3}, {"correct horse", 13}, {someKey, len(someKey)}, {"a", 1}, {"\u00e4\u20ac\u6f22", 3},
	{"\x1b[200~two\r\nlines\x1b[201~", 1}, {"\x1b[200~\x1b[31mred \u6f22\U0001f600\x1b[201~", 1},
}

// walk types at random for a number of strokes, with noise between them, and compares
// after each.
func (x *typist) walk(r *rand.Rand, steps uint64) {
	x.t.Helper()
	_, keys := x.page.means()
	last := ""
	for range steps {
		s := strokes[r.IntN(len(strokes))]
		if r.IntN(3) == 0 {
			s = stroke{sent: screen.Noise(r)}
		}

		x.Type(s.sent)
		keys += s.keys
		x.heard(fmt.Sprintf("%q behind %q", s.sent, last), keys)
		x.agrees(fmt.Sprintf("%q", s.sent))
		last = s.sent

		if _, n := x.page.means(); n != keys {
			x.t.Fatalf("after %q the page was told of %d keys, not %d", s.sent, n, keys)
		}
	}
}

// TestWalks: whatever is typed on whatever terminal, it shows what the page means, and
// what is no key does nothing. Longer by hand: SALTERN_WALK_STEPS=2000, with
// SALTERN_WALK_SEED one of before. (B1, B3)
func TestWalks(t *testing.T) {
	steps := number("SALTERN_WALK_STEPS", 40)
	seed := number("SALTERN_WALK_SEED", rand.Uint64())
	t.Logf("SALTERN_WALK_SEED=%d", seed)
	for i, o := range terminals {
		t.Run(nameOf(o), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			s := newScripted()
			s.doc = longStatus()
			w := NewWizard(context.Background(), s, "tty1")
			w.AtKeyboard(&layouts{})
			x := at(t, o, w)
			x.comes("What shall this machine do?")
			x.walk(r, steps)

			c := NewConsole(context.Background(), longLogs{s}, func(context.Context) (string, error) { return "", nil })
			c.Offer(&fakeAccess{})
			s.minions = manyKeys(60)
			x = at(t, o, c)
			x.comes("cluster prod-eu")
			x.walk(r, steps/2)
		})
	}
}

// fieldsOfText lead to pages with lines of text.
var fieldsOfText = map[string]struct {
	at     string
	to     []stroke
	fields int
}{
	"Administrator": {"SSH public key", []stroke{{enter, 1}}, 3},
	"Cluster": {"Name of the cluster",
		[]stroke{{enter, 1}, {someKey, len(someKey)}, {enter, 1}, {enter, 1}, {enter, 1}}, 4},
}

// TestNoLetterOfASequenceIsTyped: no field of text gets a letter of what terminals send
// besides text, and none loses one. (B3)
func TestNoLetterOfASequenceIsTyped(t *testing.T) {
	for _, o := range terminals[:3] {
		for name, place := range fieldsOfText {
			t.Run(nameOf(o)+"-"+name, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(1, 2))
				s := newScripted()
				s.facts.Managed = false
				x := at(t, o, NewWizard(context.Background(), s, "tty1"))
				x.comes("What shall this machine do?")

				for _, stroke := range place.to {
					x.press(stroke.sent, stroke.keys)
					x.agrees(stroke.sent)
				}

				x.comes(place.at)
				for range place.fields {
					x.press("\x15\x14", 2)
					_, keys := x.page.means()
					for range 6 {
						x.Type(screen.Noise(r))
						x.Type("x")
					}

					x.Type(dialects[o.Term].f1)
					x.heard("the key for help", keys+7)
					x.comes("Help: " + name)
					x.press("\x1b[[E", 1) // any key
					meant, _ := x.page.means()
					if !strings.Contains(strings.Join(meant, "\n")+"\n", "> xxxxxx\n") {
						t.Fatalf("not six letters in the field:\n%s", strings.Join(meant, "\n"))
					}

					x.press("\x15\x14\t", 3)
				}
			})
		}
	}
}

// TestSlowLine: keys whose bytes come one by one, as over a serial line of 9600 baud,
// are keys. (B3)
func TestSlowLine(t *testing.T) {
	for try := 0; ; try++ {
		longest := slowLine(t)
		if longest < 100*time.Millisecond {
			return
		}
		if try == 5 {
			t.Skipf("NOT TESTED: this machine is too busy: it made a pause of %v", longest)
		}
	}
}

// slowLine types byte by byte. It gives the longest pause, and compares if that was short.
func slowLine(t *testing.T) (longest time.Duration) {
	const baud9600 = 1042 * time.Microsecond // for ten bits
	s := newScripted()
	s.facts.Managed = false
	x := at(t, screen.Options{Term: "vt220", Width: 80, Height: 24, FarEnd: true},
		NewWizard(context.Background(), s, "ttyS0"))
	x.comes("What shall this machine do?")
	x.press(enter, 1)
	x.comes("SSH public key")

	for _, sent := range []string{"ab", "\x1b[D", "\x1b[<35;1;1M", "X", "\x1b[B", "\x1b[Z",
		"\x1b]11;rgb:0/0/0\x1b\\", "\x1b[4~", "c"} {
		longest = max(longest, x.TypeSlowly(sent, baud9600))
	}

	if longest < 100*time.Millisecond {
		x.comes("> aXbc")
	}

	return longest
}
