package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// axe is the text of axe-core, whose file the make target has fetched.
func axe(t *testing.T) string {
	t.Helper()
	path := os.Getenv("SALTERN_AXE")
	if path == "" {
		t.Fatal("SALTERN_AXE names no axe.min.js; run make test-browser, which fetches it")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// accessible holds that axe-core finds nothing on the page.
func (b *tab) accessible(axe, where string) {
	b.t.Helper()
	for _, v := range b.violations(axe) {
		var at []string
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			at = append(at, n.HTML)
		}
		b.t.Errorf("%s: %s (%s): %s\n%s", where, v.ID, v.Impact, v.Help, strings.Join(at, "\n"))
	}
}

// violations are what axe-core finds on the page.
func (b *tab) violations(axe string) (found []violation) {
	b.t.Helper()
	get[int](b, axe+"; 0")
	text := get[string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`)
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.t.Fatal(err)
	}
	return found
}

// TestAllPagesAccessible holds all recorded pages, those in the documentation and those of hostile texts, against
// axe-core, wide, narrow, light and dark. By hand: make test-browser RUN=TestAllPagesAccessible.
func TestAllPagesAccessible(t *testing.T) {
	script := axe(t)
	b := open(t, pages(t, ""), 1280, 800)
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(scheme)
		for _, wide := range []int64{1280, 390} {
			b.do("set the width", chromedp.EmulateViewport(wide, 800))
			for _, name := range append(hostilePages(t), docPages(t)...) {
				b.see("/"+name+".html", "main")
				b.accessible(script, fmt.Sprintf("%s, %d, %s", name, wide, scheme))
				if over := get[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
					t.Errorf("%s, %d: it is %d pixels wider than the screen", name, wide, over)
				}
			}
		}
	}
}
