package tui

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/await"
	"saltern/test/screen"
	"saltern/tui/input"
)

// watched is a model whose view a test compares with what a terminal shows of it.
type watched struct {
	tea.Model
	keys int // that the model was told of

	mu    sync.Mutex
	drawn int    // keys that text has seen
	text  string // of the last view
}

func (w *watched) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg, tea.PasteMsg:
		w.keys++
	case input.Text:
		w.keys += utf8.RuneCountInString(string(msg))
	}
	var cmd tea.Cmd
	w.Model, cmd = w.Model.Update(msg)
	return w, cmd
}

func (w *watched) View() tea.View {
	v := w.Model.View()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drawn, w.text = w.keys, ansi.Strip(v.Content)
	return v
}

// means is the view without a terminal, and how many keys it has seen.
func (w *watched) means() (lines []string, keys int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return screen.Trim(w.text), w.drawn
}

// typist types at a real terminal on which a page is drawn, and compares what it shows
// with what the page means.
type typist struct {
	t testing.TB
	*screen.Screen
	page  *watched
	ended chan error
}

// terminals are those that the pages are drawn on.
var terminals = []screen.Options{
	{Term: "linux", Width: 80, Height: 24},
	{Term: "vt220", Width: 80, Height: 24, FarEnd: true},
	{Term: "xterm", Width: 80, Height: 24},
	{Term: "linux", Width: 132, Height: 43},
	{Term: "vt220", Width: 132, Height: 43},
	{Term: "xterm", Width: 132, Height: 43},
}

func nameOf(o screen.Options) string { return fmt.Sprintf("%s-%dx%d", o.Term, o.Width, o.Height) }

// quick is how often a second tests have pages drawn.
const quick = 60

// at draws a page on a terminal.
func at(t testing.TB, o screen.Options, m tea.Model) *typist {
	t.Helper()
	x := &typist{t: t, Screen: screen.New(t, o), page: &watched{Model: m}, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, err := Terminal{In: x.Tty(), Out: x.Tty(), Env: x.Env(), fps: quick}.Run(ctx, x.page)
		x.ended <- err
	}()

	t.Cleanup(func() {
		cancel()
		if err := <-x.ended; err != nil {
			t.Error(err)
		}
	})

	return x
}

// agrees waits until the terminal shows what the page means.
func (x *typist) agrees(after string) {
	x.t.Helper()
	var shown, meant []string
	same := func() bool {
		shown = x.Lines()
		meant, _ = x.page.means()
		return strings.Join(shown, "\n") == strings.Join(meant, "\n")
	}
	if !await.Within(10*time.Second, same) {
		x.t.Fatalf("after %s the terminal shows\n%s\n\nand the page is\n%s", after,
			strings.Join(shown, "\n"), strings.Join(meant, "\n"))
	}
}

// press sends what keys send, waits until the page has had as many, and compares.
func (x *typist) press(sent string, keys int) {
	x.t.Helper()
	_, before := x.page.means()
	x.Type(sent)
	x.heard(fmt.Sprintf("%q", sent), before+keys)
	x.agrees(fmt.Sprintf("%q", sent))
}

// heard waits until the page has had so many keys.
func (x *typist) heard(what string, keys int) {
	x.t.Helper()
	n := 0
	if !await.Within(10*time.Second, func() bool { _, n = x.page.means(); return n >= keys }) {
		x.t.Fatalf("%s: the page was told of %d keys, not %d", what, n, keys)
	}
}

// text sends text, each character being a key.
func (x *typist) text(text string) { x.t.Helper(); x.press(text, len(text)) }

// comes waits for a text of a page, and compares.
func (x *typist) comes(text string) {
	x.t.Helper()
	has := func() bool {
		meant, _ := x.page.means()
		return strings.Contains(screen.Flat(meant), text)
	}
	if !await.Within(10*time.Second, has) {
		meant, _ := x.page.means()
		x.t.Fatalf("%q does not come:\n%s", text, strings.Join(meant, "\n"))
	}
	x.agrees("the page with " + text)
}

// Keys as terminals send them.
const (
	up, down, pgUp, pgDn = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
	enter, tab, escape   = "\r", "\t", "\x1b"
	repaintAll           = "\x0c"
)

// dialect are the keys that terminals send in ways of their own.
type dialect struct{ f1, backTab, home string }

var dialects = map[string]dialect{
	"linux": {f1: "\x1b[[A", backTab: "\x1b\t", home: "\x1b[1~"},
	"vt220": {f1: "\x1b[28~", backTab: "\x1b[Z", home: "\x1b[1~"},
	"xterm": {f1: "\x1bOP", backTab: "\x1b[Z", home: "\x1bOH"},
}

// layouts are those of a keyboard: more than its field has room for.
type layouts struct{ now string }

func (*layouts) Layouts() (all []Layout) {
	for _, title := range strings.Fields("English German Swiss French Belgian Dutch Spanish Portuguese Italian Danish Norwegian Swedish Finnish Polish Czech Hungarian Japanese") {
		all = append(all, Layout{strings.ToLower(title[:2]) + title[2:4], title})
	}
	return all
}
func (l *layouts) Now() string                              { return "enGl" }
func (l *layouts) Set(_ context.Context, name string) error { l.now = name; return nil }

// TestWizardOnTerminals: each page of the wizard, with the keys of each kind of
// terminal, is shown as it is meant, also after it has scrolled. (B1, B3)
func TestWizardOnTerminals(t *testing.T) {
	for _, o := range terminals {
		t.Run(nameOf(o), func(t *testing.T) {
			t.Parallel()
			s, keys := newScripted(), dialects[o.Term]
			w := NewWizard(context.Background(), s, "tty1")
			w.AtKeyboard(&layouts{})
			x := at(t, o, w)
			x.comes("What shall this machine do?")
			x.press(tab, 1)

			for range 10 {
				x.press(down, 1)
			}

			x.press(repaintAll, 0)
			x.press(keys.f1, 1)
			x.comes("Help: Welcome")
			x.press(" ", 1)
			x.press(keys.backTab, 1)
			x.press(enter, 1)
			x.press(enter, 1)

			x.comes("A change is tried first")
			x.press(enter, 1) // two interfaces
			x.press(down, 1)
			x.press(down, 1)
			x.press(enter, 1)
			x.comes("Address with prefix length")
			fixed(x, keys)

			x.comes("is taken back in")
			x.press(enter, 1)
			x.comes("SSH public key")
			x.press(keys.f1, 1)
			x.comes("Help: Administrator")
			x.press(keys.f1, 1)
			x.press(tab, 1)
			x.text("correct horse")
			x.press(tab, 1)
			x.text("correct horse")
			x.press("\x14", 1)
			x.press(enter, 1)

			x.comes("Secret of the cluster")
			clusterPage(x, keys)
			x.comes("disk /dev/vdb")
			x.press(enter, 1)
			x.comes("An address that moves")
			x.press(enter, 1)
			x.comes("Shall this node serve")
			x.press(enter, 1)
			x.comes("clock, compared")
			x.press(enter, 1)
			x.comes("This will be done")
			x.press("s", 1)
			x.comes("make the cluster's key")
			s.set(func(s *scripted) { s.progress = readyProgress() })
			x.comes("This node is ready")

			for _, key := range []string{down, down, down, up, repaintAll, up} {
				x.press(key, strings.Count(key, "\x1b"))
			}
		})
	}
}

// TestJoinOnTerminals: the pages of a node that joins, with a pasted join string, and of
// a disk that is not empty. (B1, B3)
func TestJoinOnTerminals(t *testing.T) {
	for _, o := range terminals[:3] {
		t.Run(nameOf(o), func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			s.facts.Managed = false
			x := at(t, o, NewWizard(context.Background(), s, "ttyS0"))
			x.comes("What shall this machine do?")
			x.press(down+enter, 2)
			x.comes("SSH public key")
			x.press("\x1b[200~"+someKey[:40]+"\r\n"+someKey[40:]+"\r\n\x1b[201~", 1)
			x.press(enter+enter+enter, 3)
			x.comes("What do you have from the cluster?")
			x.press(enter+enter+enter, 3)
			x.comes("begins with sca2.")
			x.press("\x14\x1b[200~"+broken(join, 30)+"z\x1b[201~", 2)
			x.comes("110 characters") // the last of them is wrong
			x.press(enter, 1)
			x.comes("typing error")
			x.press("\x7f", 1)
			x.press(enter, 1)
			x.comes("The cluster decides")
			x.press(down+down+down+enter, 4)
			x.comes("Erase /dev/vdc?")
			x.press(enter, 1)
			x.comes("Please correct")
			x.press(escape, 1)
			x.press(up+enter, 2)
			x.comes("an absolute path")
			x.press("srv"+enter, 4)
			x.comes("Please correct")
			x.press("\x01/"+enter, 3)
			x.comes("Shall this node serve")
			x.press(enter, 1)
			x.comes("The set-up can go on")
			x.press(enter, 1)
			x.comes("that of the join string")
			x.press(repaintAll, 0)
		})
	}
}

// fixed fills the page of a fixed address, with a fault first.
func fixed(x *typist, keys dialect) {
	x.t.Helper()
	x.press("\x15", 1)
	x.text("10.0.0.21")
	x.press(enter, 1)

	for range 4 {
		x.press(tab, 1)
	}

	x.press(enter, 1)
	x.comes("Please correct")
	x.press(keys.home, 1)
	x.press("\x05", 1)
	x.text("/24")

	for range 4 {
		x.press(tab, 1)
	}

	x.press(enter, 1)
}

// clusterPage goes up and down on the page with the secret, whose fault is so long that the
// page scrolls.
func clusterPage(x *typist, keys dialect) {
	x.t.Helper()
	x.text("blue")
	for range 3 {
		x.press(down, 1)
	}

	x.text("aaaaaaaaaaaaaaaa")
	x.press(enter, 1)
	x.comes("Please correct")
	for range 3 {
		x.press(keys.backTab, 1)
	}

	for range 3 {
		x.press(tab, 1)
	}

	x.press("\x15", 1)
	x.press(enter, 1)
}

// readyProgress is the end of a set-up.
func readyProgress() setup.Progress {
	return setup.Progress{State: status.SetupReady, Done: &setup.Done{
		Addresses:  []string{"10.0.0.20", "10.0.0.21"},
		Console:    "https://10.0.0.20:8000/console/",
		MinionConf: setup.MinionConf([]string{"10.0.0.20"}, finger, setup.Ports{}),
		JoinString: join,
		BackUp:     []string{"the join string above", "what applianced backup writes"},
	}}
}

// longStatus is a status that no screen has room for.
func longStatus() status.Document {
	d := someStatus(time.Now())
	for i := range 40 {
		p := d.Problems[0]
		p.Title = fmt.Sprintf("node sca-%d is unreachable", i)
		p.Subject = p.Title
		d.Problems = append(d.Problems, p)
	}
	return d
}

// manyKeys are keys that wait.
func manyKeys(n int) (list []status.Minion) {
	for i := range n {
		list = append(list, status.Minion{ID: fmt.Sprintf("minion-%d", i), Key: "pending", Finger: finger})
	}
	return list
}

// longLogs has longer logs than a screen.
type longLogs struct{ *scripted }

func (longLogs) Output(_ context.Context, name string, n int) (lines []string, err error) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("line %d of %s, and %s", i, name, strings.Repeat("x", i%70)))
	}
	return lines, nil
}

// TestConsoleOnTerminals: the views of the console page are shown as they are meant,
// however they scroll. (B1)
func TestConsoleOnTerminals(t *testing.T) {
	for _, o := range terminals {
		t.Run(nameOf(o), func(t *testing.T) {
			t.Parallel()
			s, keys := newScripted(), dialects[o.Term]
			s.doc = longStatus()
			s.minions = manyKeys(60)
			c := NewConsole(context.Background(), longLogs{s}, nil)
			c.Offer(&fakeAccess{})
			x := at(t, o, c)
			x.comes("cluster prod-eu")
			x.press("1", 1)

			for _, key := range []string{down, down, pgDn, down, up, pgUp, up, down, repaintAll, down} {
				x.press(key, strings.Count(key, "\x1b"))
			}

			x.press(escape, 1)
			x.press("2", 1)
			x.comes("line 199 of master")
			for _, key := range []string{up, up, pgUp, down, pgUp, pgUp, down, pgDn} {
				x.press(key, 1)
			}

			x.press("0", 1)
			x.press("3", 1)
			x.comes("Host name")
			x.press("0", 1)
			x.press("5", 1)
			x.comes("restart salt-master")
			x.press("0", 1)
			x.press("m", 1)
			x.comes("In each minion's")
			x.press("k", 1)
			x.comes("60")

			for range 22 {
				x.press(down, 1)
			}

			x.press(keys.f1, 1)
			x.press("x\x1b[5~a", 3)
			x.comes("(y/n)")
			x.press("n0", 2)
			x.press("8", 1)
			x.comes("SSH public key")
			x.text("nonsense")
			x.press(enter, 1)
			x.press(escape, 1)
		})
	}
}

// scribbles are what other programs leave on a terminal.
var scribbles = []string{
	"[ 1234.5] Out of memory: Killed process 812\r\n",
	strings.Repeat("line\n", 60),
	"\x1b[5;10r\x1b[10;1H\n\n\n",                // a region that scrolls
	"\x1b[4hinserted",                           // insertion
	"\x1b[?7l\x1b[7mreverse\x0e\x1b(0lqqk",      // no wrapping, reverse, drawing characters
	"\x1b[?6h\x1b[2J\x1b[?25hnothing else left", // origin, a cursor
}

// TestTerminalOfManyPrograms: what the kernel or another program writes on the
// terminal, in whatever state it leaves it, is gone after Ctrl-L, and after a change of
// the size. (B1)
func TestTerminalOfManyPrograms(t *testing.T) {
	for _, o := range terminals[:4] {
		t.Run(nameOf(o), func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			s.doc = longStatus()
			x := at(t, o, NewConsole(context.Background(), s, nil))
			x.comes("cluster prod-eu")
			x.press("1", 1)

			for _, left := range scribbles {
				x.Scribble(left)
				x.disturbed(left)
				x.press(repaintAll, 0)
				x.press(down, 1)
				x.press(pgDn, 1)
				x.press(up, 1)
			}
		})
	}
}

// TestTerminalChangesSize: a page is whole in each size that the terminal gets, and
// says so where it has no room. (B1)
func TestTerminalChangesSize(t *testing.T) {
	for _, o := range terminals[:4] {
		t.Run(nameOf(o), func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			s.doc = longStatus()
			x := at(t, o, NewConsole(context.Background(), s, nil))
			x.comes("cluster prod-eu")
			x.press("1", 1)

			for _, by := range [][2]int{{1, 0}, {0, 1}, {40, 7}, {2, 2}, {-o.Width + 60, -o.Height + 10}, {0, 0}} {
				x.Scribble(scribbles[0])
				x.Resize(o.Width+by[0], o.Height+by[1])
				x.sized(o.Width+by[0], o.Height+by[1])
				x.press(pgDn, 1)
				x.press(down, 1)
				x.press(up, 1)
			}
		})
	}
}

// sized waits until the page has a size, and compares.
func (x *typist) sized(width, height int) {
	x.t.Helper()
	has := func() bool {
		meant, _ := x.page.means()
		if width < minWidth || height < minHeight {
			return strings.Contains(screen.Flat(meant), "too small")
		}
		return len(meant) == height && len(meant[1]) == width-1
	}
	if !await.Within(10*time.Second, has) {
		meant, _ := x.page.means()
		x.t.Fatalf("the page is not %dx%d:\n%s", width, height, strings.Join(meant, "\n"))
	}
	x.agrees("another size")
}

// disturbed waits until the terminal shows something else than the page.
func (x *typist) disturbed(by string) {
	x.t.Helper()
	if !await.Within(10*time.Second, func() bool {
		meant, _ := x.page.means()
		return strings.Join(x.Lines(), "\n") != strings.Join(meant, "\n")
	}) {
		x.t.Fatalf("%q is not to be seen", by)
	}
}
