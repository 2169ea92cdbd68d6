package reactor

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/logged"
)

// TestRulesOfAFile: the option reactor may be the path of a file (findings m6, F9). A change
// counts soon; a file that cannot be read is logged once and leaves the rules as they are.
func TestRulesOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reactor.conf")
	synctest.Test(t, func(t *testing.T) {
		var log logged.Buffer
		r := NewRules(RulesConfig{File: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
		go r.Follow(t.Context())
		logged := 0
		for _, tt := range []struct {
			name, text string
			want       []string // for my/event
			errors     int
		}{
			{"missing", "", nil, 1}, // logged at the start
			{"rules", "- 'my/*': /a.sls\n- 'other': [/b.sls]\n- broken\n", []string{"/a.sls"}, 1},
			{"others", "- 'my/*': [/c.sls, /d.sls]\n", []string{"/c.sls", "/d.sls"}, 0},
			{"no YAML", "- 'my/*: [", []string{"/c.sls", "/d.sls"}, 1},
			{"no list", "{my/*: /e.sls}\n", []string{"/c.sls", "/d.sls"}, 1},
			{"too long", strings.Repeat("#", maxRules+1), []string{"/c.sls", "/d.sls"}, 1},
			{"gone", "", []string{"/c.sls", "/d.sls"}, 1},
			{"empty list", "[]\n", nil, 0},
			{"again", "- 'my/*': /a.sls\n", []string{"/a.sls"}, 0},
			{"emptied", "\n", nil, 0},
			{"a second time", "- 'my/*': /a.sls\n", []string{"/a.sls"}, 0},
			{"comments", "# - 'my/*': /a.sls\n", nil, 0},
			{"a third time", "- 'my/*': /a.sls\n", []string{"/a.sls"}, 0},
			{"nothing but null", "~\n", nil, 0},
		} {
			if tt.text == "" {
				_ = os.Remove(path)
			} else if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}

			time.Sleep(10 * lookEvery)
			synctest.Wait()
			if got := r.Files("my/event"); !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v", tt.name, got)
			}

			logged += tt.errors
			if n := strings.Count(log.String(), "level=ERROR"); n != logged {
				t.Errorf("%s: %d errors, want %d\n%s", tt.name, n, logged, &log)
			}
		}

		for _, got := range []*value.Map{r.Add("x", "/x.sls"), r.Delete("my/*")} {
			if got.Bool("status") || !strings.Contains(got.Str("comment"), path) {
				t.Errorf("a change of rules that are in a file: %v", got)
			}
		}
	})
}

// TestRulesWhileTheirFileIsWritten: who writes the file in place empties it first and fills it part
// by part. No event meets the half of the rules.
func TestRulesWhileTheirFileIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reactor.conf")
	parts := []string{"", "- 'other': /b.sls\n", "- 'other': /b.sls\n- 'my/*': /a.sls\n"}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write("- 'my/*': /a.sls\n")
	synctest.Test(t, func(t *testing.T) {
		r := NewRules(RulesConfig{File: path, Log: slog.New(slog.DiscardHandler)})
		go r.Follow(t.Context())
		time.Sleep(lookEvery / 2)
		for range 20 {
			for _, text := range parts {
				write(text)
				time.Sleep(lookEvery)
				synctest.Wait()
				if got := r.Files("my/event"); !slices.Equal(got, []string{"/a.sls"}) {
					t.Fatalf("after %q: %v", text, got)
				}
			}
		}

		write("")
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if got := r.Files("my/event"); len(got) > 0 {
			t.Errorf("the file is empty, and stays so: %v", got)
		}
	})
}

// A change of the rules is told to the other masters, which obey a master and nobody else.
func TestRulesOfOtherMasters(t *testing.T) {
	r := newReacting(t, 100, 1)
	var told []*value.Map
	here := NewRules(RulesConfig{
		Tell: func(change *value.Map) { told = append(told, change) },
		Log:  slog.New(slog.DiscardHandler),
	})

	for _, got := range []*value.Map{here.Add("one", "/1.sls"), here.Add("two", []any{"/2.sls"}), here.Delete("one")} {
		if !got.Bool("status") {
			t.Error(got)
		}
	}

	for _, got := range []*value.Map{here.Add("two", "/x.sls"), here.Delete("one"), here.Add("", "/x.sls"),
		here.Add("x", int64(5))} {
		if got.Bool("status") {
			t.Error(got)
		}
	}

	if len(told) != 3 {
		t.Fatalf("%d changes are told: %v", len(told), told)
	}

	for n, from := range []event.Event{
		{Origin: event.Minion, Minion: "m"}, {Origin: event.Socket}, {Origin: event.Internal}, {Origin: event.Runner},
		{Origin: event.Peer, Maker: event.Minion}, {Origin: event.Peer, Maker: event.Socket},
	} {
		from.Tag = event.TagReactorRules
		bad := changes{fmt.Sprint("bad", n): {stamp: stamp{1, "x"}, files: []string{"/bad.sls"}}}
		from.Data = bad.toEvent()
		if err := r.bus.Relay(from); err != nil {
			t.Fatal(err)
		}
	}

	for _, change := range told {
		if err := r.bus.Relay(event.Event{
			Tag:    event.TagReactorRules,
			Data:   change,
			Origin: event.Peer,
			Maker:  event.Internal,
		}); err != nil {
			t.Fatal(err)
		}
	}

	await.That(t, "the changes",
		func() bool { return len(r.rules.Files("two")) == 1 && len(r.rules.Files("one")) == 0 })
	if all := r.rules.All(); len(all) != 2 { // my/event is the first
		t.Errorf("%v", all)
	}
}
