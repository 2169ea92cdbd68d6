package browser

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"saltern/test/lab"
)

// tab is a page of a browser.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu     sync.Mutex
	faults []string // what its console has told of
	asked  []string // addresses elsewhere
}

// open starts Chromium with an empty profile, and with fonts that are the same on each machine.
func open(t *testing.T, base string, wide, high int64) *tab {
	t.Helper()
	return browse(t, base, wide, high, chromedp.Env("FONTCONFIG_FILE="+fonts(t)),
		chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("lang", "en-US"))
}

// browse starts Chromium with an empty profile.
func browse(t *testing.T, base string, wide, high int64, more ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: apt-get install chromium")
	}

	opts := append(more, chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()), chromedp.Headless,
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun)
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-lcd-text", "hide-scrollbars", "ignore-certificate-errors"} {
		opts = append(opts, chromedp.Flag(f, true))
	}

	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	b := &tab{t: t, ctx: ctx, base: base}

	// The first use must not end with a deadline: it starts the browser.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(wide, high)); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}

	var listeners sync.WaitGroup
	t.Cleanup(func() { end(); listeners.Wait() })
	messages := chromedp.Console(ctx)
	requests := chromedp.Events(ctx, network.RequestWillBeSent)
	listeners.Go(func() {
		for m, err := range messages {
			// Chromium ends streams, too, when a network of this host comes or goes; see visit.
			changed := strings.Contains(m.Text, "net::ERR_NETWORK_CHANGED")
			if err == nil && !changed && (m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException()) {
				b.note(&b.faults, fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
			}
		}
	})

	listeners.Go(func() {
		for e, err := range requests {
			if err == nil && !strings.HasPrefix(e.Request.URL, base[:strings.LastIndex(base, ":")]) &&
				!strings.HasPrefix(e.Request.URL, "data:") {
				b.note(&b.asked, e.Request.URL)
			}
		}
	})

	return b
}

func (b *tab) note(list *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, text)
}

// clean holds that nothing was complained of, and nobody elsewhere asked.
func (b *tab) clean(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults)+len(b.asked) > 0 {
		b.t.Errorf("%s: the browser's console: %s; asked elsewhere: %s", where, strings.Join(b.faults, "; "),
			strings.Join(b.asked, " "))
	}
	b.faults, b.asked = nil, nil
}

func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := b.try(time.Minute, actions...); err != nil {
		b.t.Fatalf("%s: %v\n%s", what, err, get[string](b, `document.location.href + "\n" + `+shown+`.slice(0, 2000)`))
	}
}

func (b *tab) try(limit time.Duration, actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(b.ctx, lab.Limit(limit))
	defer cancel()
	return chromedp.Do(ctx, actions...)
}

// get is the value of an expression on the page.
func get[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, lab.Limit(time.Minute))
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.100s: %v", expression, err)
	}
	return v
}

// shown is the text of a page; one that is just being loaded has none.
const shown = `(document.body?.innerText ?? "")`

// there waits until what a selector of CSS names is seen. Chromium drops what it was
// asked about a page that it leaves for the next one: it is asked again.
func there(at string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		for {
			if v, err = chromedp.WaitVisible(chromedp.CSS(at))(ctx, t); err == nil || ctx.Err() != nil {
				return v, err
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func click(at string) chromedp.Action[chromedp.Void] { return chromedp.Click(chromedp.CSS(at)) }
func typed(at, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(at), text)
}

// see opens a page and waits until something is on it.
func (b *tab) see(path, selector string) {
	b.t.Helper()
	b.do("see "+path, visit(b.base+path), there(selector))
}

// visit opens an address. Chromium gives up what it loads when a network of this host comes
// or goes, as those of other tests do: it is asked again.
func visit(address string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
		for {
			v, err = chromedp.Navigate(address)(ctx, t)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "ERR_NETWORK_CHANGED") {
				return v, err
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// has waits for a text on the page.
func (b *tab) has(want string) {
	b.t.Helper()
	lab.Eventually(b.t, 90*time.Second, fmt.Sprintf("%q on the page", want), func() error {
		if s := get[string](b, shown); !strings.Contains(s, want) {
			return fmt.Errorf("page: %.2000s", s)
		}
		return nil
	})
}

// picture keeps what is seen, where SALTERN_PICTURES names a folder.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("SALTERN_PICTURES")
	if dir == "" {
		return
	}

	text, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		text, err = small(decode(b.t, text))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), text, 0o644)
	}

	if err != nil {
		b.t.Fatal(err)
	}
}

// small makes a picture smaller: with the 256 colours that are in it most often.
func small(all *image.RGBA) ([]byte, error) {
	often := map[color.RGBA]int{}
	for y := all.Rect.Min.Y; y < all.Rect.Max.Y; y++ {
		for x := all.Rect.Min.X; x < all.Rect.Max.X; x++ {
			often[all.RGBAAt(x, y)]++
		}
	}

	// In one order, so that the same picture is the same file.
	colours := slices.SortedFunc(maps.Keys(often), func(a, b color.RGBA) int {
		return cmp.Or(often[b]-often[a], cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}

	out := image.NewPaletted(all.Rect, palette)
	draw.Draw(out, all.Rect, all, all.Rect.Min, draw.Src)
	var b bytes.Buffer
	err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out)

	return b.Bytes(), err
}
