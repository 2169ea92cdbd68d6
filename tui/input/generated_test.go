package input

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"saltern/test/screen"
)

// TestMadeUpSequencesAreDropped: no letter of a sequence that nobody has heard of is
// typed, and none that is typed around it is lost. (B3)
func TestMadeUpSequencesAreDropped(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		sent := "x" + screen.Noise(r) + screen.Noise(r) + "y"
		for _, pause := range pauses {
			if got := strings.Join(typed(sent, pause), " "); got != `"x" "y"` {
				t.Fatalf("seed %d: %q with pauses of %v: %s", seed, sent, pause, got)
			}
		}
	}
}

// FuzzDecoder: whatever comes, what is typed is text that can be seen, nothing is kept
// beyond the bounds, all of it comes to an end, and it means the same in one piece and
// byte by byte.
func FuzzDecoder(f *testing.F) {
	for _, s := range []string{"a\x1b[A\x1b[[B\x1bOP\x1b\t\x1b", "\x1b[200~p\r\n\x1b[201~",
		"\x1b]11;?\x07\x1bPq\x1b\\", "\x1b[M\xc3\xa4!!\xe4\xb8", "\x9b1;5~\x8fM\r\x00\n"} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, sent []byte) {
		now := time.Now()
		var whole, bytewise Decoder
		all := whole.Feed(sent, now)
		var each []tea.Msg
		for _, b := range sent {
			each = append(each, bytewise.Feed([]byte{b}, now)...)
			if len(bytewise.seq) > maxSequence || len(bytewise.paste) > maxPaste+len(pasteEnd) ||
				bytewise.escapes > maxEscapes || len(bytewise.partial) > 4 {
				t.Fatalf("too much is kept of %q", sent)
			}
		}

		later := now.Add(time.Minute)
		all = append(all, whole.Expire(later)...)
		each = append(each, bytewise.Expire(later)...)
		if !reflect.DeepEqual(all, each) && len(all)+len(each) > 0 {
			t.Errorf("%q: in one piece %v, byte by byte %v", sent, all, each)
		}

		if !whole.Deadline().IsZero() {
			t.Errorf("%q never ends", sent)
		}

		for _, m := range all {
			text := ""
			switch m := m.(type) {
			case tea.KeyPressMsg:
				text = m.Text
			case tea.PasteMsg:
				text = strings.NewReplacer("\n", "", "\t", "").Replace(m.Content)
			}

			if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }); i >= 0 {
				t.Errorf("%q types %q", sent, text)
			}
		}
	})
}
