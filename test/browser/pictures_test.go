package browser

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var (
	update  = flag.Bool("update", false, "write the pictures in testdata anew")
	compare = flag.Bool("compare", true, "hold pages against the pictures in testdata")
)

const (
	// tolerance is the share of a picture's pixels that may differ: another release of
	// Chromium may draw the edges of letters otherwise.
	tolerance = 0.0005
	// step is how far one of a pixel's colours, of 255 and rounded, may be away before the pixel
	// differs: one step of those that rounded leaves.
	step = 17
	// tallest is what is looked at of a long page, in pixels.
	tallest = 4000
)

// still keeps what is moving from the pictures.
const still = `* { caret-color: transparent !important; animation: none !important; transition: none !important; }`

// docEvents are the events on the page of events in the documentation, the oldest first.
const docEvents = `data: {"tag":"salt/auth","data":{"id":"web2000.example.com","act":"pend","_stamp":"2026-11-24T15:59:05.081"}}

data: {"tag":"salt/job/20261124155910000000/ret/web0107.example.com","data":{"id":"web0107.example.com","fun":"state.apply","retcode":2,"_stamp":"2026-11-24T15:59:13.402"}}

data: {"tag":"salt/job/20261124155940000000/new","data":{"fun":"service.restart","arg":["nginx"],"tgt":"web*","user":"otto","_stamp":"2026-11-24T15:59:40.318"}}

data: {"tag":"salt/job/20261124155940000000/ret/web0003.example.com","data":{"id":"web0003.example.com","fun":"service.restart","return":true,"retcode":0,"_stamp":"2026-11-24T15:59:42.007"}}

data: {"tag":"salt/presence/change","data":{"new":["web1999.example.com"],"lost":[],"_stamp":"2026-11-24T15:59:50.000"}}

`

// pages serves the pages that the console's own tests hold its templates to, whose data and times
// are fixed, with its style and script. altered is added to the style.
func pages(t *testing.T, altered string) string {
	t.Helper()
	const console = "../../master/restapi/internal/console"
	mux := http.NewServeMux()
	mux.Handle("/api/console/",
		http.StripPrefix("/api/console/", http.FileServer(http.Dir(filepath.Join(console, "static")))))
	mux.HandleFunc("/api/console/stream", func(w http.ResponseWriter, r *http.Request) { // without an event, but for the page of events
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		if tag := r.URL.Query()["tag"]; len(tag) == 1 && tag[0] == "" { // of the page of events
			_, _ = w.Write([]byte(docEvents))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(console, "testdata"))))

	if altered != "" {
		style, err := os.ReadFile(filepath.Join(console, "static/console.css"))
		if err != nil {
			t.Fatal(err)
		}

		mux.HandleFunc("/api/console/console.css", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/css")
			_, _ = w.Write(append(style, altered...))
		})
	}

	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// TestPictures holds what Chromium makes of the console's pages against the pictures in
// testdata, wide, narrow and dark. -update writes those anew.
func TestPictures(t *testing.T) {
	t.Parallel()
	names := hostilePages(t)
	base := pages(t, "")
	b := open(t, base, 1280, 800)
	for _, wide := range []int64{1280, 390} {
		for _, name := range names {
			if name == "events" { // without events to listen to it is another page: see TestConsole
				continue
			}
			b.see("/"+name+".html", "main")
			b.golden(name, wide)
		}
	}

	b.prefer("dark")
	for _, name := range []string{"overview", "job"} {
		b.see("/"+name+".html", "main")
		b.golden(name+"-dark", 1280)
	}
}

// prefer chooses light or dark colours.
func (b *tab) prefer(scheme string) {
	b.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{
		Name:  "prefers-color-scheme",
		Value: scheme,
	}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.t.Fatal(err)
	}
}

// docPages returns the names of the pages whose pictures are in the documentation.
func docPages(t *testing.T) []string { return recordedPages(t, "docs/") }

// hostilePages returns the names of the other recorded pages, whose texts come from hostile minions.
func hostilePages(t *testing.T) []string { return recordedPages(t, "") }

func recordedPages(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../master/restapi/internal/console/testdata/" + folder + "*.html")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d pages in %q: %v", len(files), folder, err)
	}
	for _, file := range files {
		names = append(names, folder+strings.TrimSuffix(filepath.Base(file), ".html"))
	}
	return names
}

// TestPicturesInDocs writes the pictures in the documentation with -update: the pages have the same data, see
// TestDocPages of the console.
func TestPicturesInDocs(t *testing.T) {
	t.Parallel()
	if !*update {
		t.Skip("it writes pictures only with -update")
	}
	b := open(t, pages(t, ""), 1280, 800)
	for _, name := range docPages(t) {
		b.see("/"+name+".html", "main")
		name = strings.TrimPrefix(name, "docs/")
		high := 2300
		switch name {
		case "job", "batch", "codes": // the rest is more of the same
			high = 1200
		case "events":
			b.do("open one", there("#events li:nth-child(5)"), click("#events li:nth-child(3) summary"))
		}
		b.docPicture(name, 1280, high)
	}
	for _, name := range []string{"overview", "fleet", "minions", "jobs", "keys", "schedule", "audit"} {
		b.see("/docs/"+name+".html", "main")
		b.docPicture(name+"-390", 390, 1600)
	}
	b.do("be narrow", chromedp.EmulateViewport(390, 800))
	b.see("/docs/fleet.html", "main")
	b.do("open the menu", click("#menu"))
	b.docPicture("menu-390", 390, 900)

	b.prefer("dark")
	for _, name := range []string{"overview", "fleet", "jobs", "job"} {
		b.see("/docs/"+name+".html", "main")
		b.docPicture(name+"-dark", 1280, 1200)
	}
}

// TestTimesByScript holds that the script, which keeps the words for times fresh, has those of the master. It takes
// a minute. By hand: make test-browser RUN=TestTimesByScript.
func TestTimesByScript(t *testing.T) {
	t.Parallel()
	b := open(t, pages(t, ""), 1280, 800)
	const words = `[...document.querySelectorAll("time")].map(t => t.dateTime + " " + t.textContent)`
	for _, name := range []string{"docs/overview", "docs/explained", "docs/tokens", "docs/schedule", "docs/saved"} {
		b.see("/"+name+".html", "main")
		before := get[[]string](b, words)
		get[int](b, `new Promise(done => setTimeout(done, 10500)).then(() => 0)`)
		compared := 0
		for i, after := range get[[]string](b, words) {
			if !strings.Contains(before[i], "(") { // within an hour; seconds go on meanwhile
				continue
			}
			compared++
			if after != before[i] {
				t.Errorf("%s: the master says %q, the script %q", name, before[i], after)
			}
		}
		t.Logf("%s: %d times compared", name, compared)
	}
}

// docPicture writes the upper part of the page as a picture of the documentation.
func (b *tab) docPicture(name string, wide int64, high int) {
	b.t.Helper()
	shot := rounded(decode(b.t, b.shot(wide)))
	high = min(shot.Rect.Dy(), high)
	for high > 100 && high < shot.Rect.Dy() && !plainRow(shot, high-1) { // cut no line of text
		high--
	}
	text, err := small(plain(shot.SubImage(image.Rect(0, 0, shot.Rect.Dx(), high))))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile("../../docs/images/console-"+name+".png", text, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// plainRow reports whether a row of pixels has one colour.
func plainRow(p *image.RGBA, y int) bool {
	for x := 1; x < p.Rect.Dx(); x++ {
		if p.RGBAAt(x, y) != p.RGBAAt(0, y) {
			return false
		}
	}
	return true
}

// TestPicturesDiffer holds that a change of the style is seen, and that none is not.
func TestPicturesDiffer(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(golden("keys", 1280))
	if err != nil {
		t.Fatal(err)
	}

	b := open(t, pages(t, ""), 1280, 800)
	for _, c := range []struct {
		name, style string
		differs     bool
	}{
		{"as it is", "", false},
		{"a paler text", ":root { --text: #5c6468; }", true},
		{"a line lower", "th, td { padding-bottom: .45rem; }", true},
		{"another font", "html { font-family: monospace; }", true},
		{"the mark of the page narrower", "nav li a { border-radius: 0; padding: .35rem .5rem; }", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.do("see it", chromedp.Navigate(pages(t, c.style)+"/keys.html"), there("main"))
			got := rounded(decode(t, b.shot(1280)))
			share, _ := differs(decode(t, want), got)
			t.Logf("%.3f %% differ", 100*share)
			if share > tolerance != c.differs {
				t.Errorf("the tolerance is %.3f %%", 100*tolerance)
			}
		})
	}
}

func golden(name string, wide int64) string {
	return filepath.Join("testdata", fmt.Sprintf("%s-%d.png", name, wide))
}

// golden holds the page against its picture. Where they differ it leaves NAME.got.png, what
// Chromium shows, and NAME.differs.png, with the pixels that differ in red.
func (b *tab) golden(name string, wide int64) {
	b.t.Helper()
	if !*compare {
		return
	}

	file := golden(name, wide)
	shot := b.shot(wide)
	write := func(file string, text []byte) {
		b.t.Helper()
		if err := os.WriteFile(file, text, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}

	gotFile := strings.TrimSuffix(file, ".png") + ".got.png"
	differsFile := strings.TrimSuffix(file, ".png") + ".differs.png"
	_, _ = os.Remove(gotFile), os.Remove(differsFile) // of an earlier run
	if *update {
		text, err := small(rounded(decode(b.t, shot)))
		if err != nil {
			b.t.Fatal(err)
		}
		write(file, text)
		return
	}

	was, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatalf("there is no picture yet: make test-browser UPDATE=1 writes it: %v", err)
	}

	share, seen := differs(decode(b.t, was), rounded(decode(b.t, shot)))
	if share <= tolerance {
		return
	}

	var red bytes.Buffer
	if err := png.Encode(&red, seen); err != nil {
		b.t.Fatal(err)
	}

	write(gotFile, shot)
	write(differsFile, red.Bytes())
	b.t.Errorf("%s: %.3f %% of the pixels differ, %.3f %% may; look at %s and %s; make test-browser UPDATE=1 writes it anew",
		file, 100*share, 100*tolerance, gotFile, differsFile)
}

// shot is a picture of the whole page at a width.
func (b *tab) shot(wide int64) []byte {
	b.t.Helper()
	b.do("set the width", chromedp.EmulateViewport(wide, 800))
	get[bool](b,
		fmt.Sprintf(`document.fonts.ready.then(() => { const s = new CSSStyleSheet(); s.replaceSync(%q); document.adoptedStyleSheets = [s]; scrollTo(0, 0); return true; })`,
			still))
	high := get[int64](b, `document.documentElement.scrollHeight`)
	b.do("show all of it", chromedp.EmulateViewport(wide, min(max(high, 200), tallest)))
	text, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// decode gives a picture with four bytes a pixel.
func decode(t *testing.T, text []byte) *image.RGBA {
	t.Helper()
	p, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return plain(p)
}

// rounded has 16 steps of each colour, so that a picture needs few of them: the files are small.
func rounded(p *image.RGBA) *image.RGBA {
	for i, v := range p.Pix {
		p.Pix[i] = v&^15 | v>>4
	}
	return p
}

func plain(p image.Image) *image.RGBA {
	out := image.NewRGBA(p.Bounds())
	draw.Draw(out, p.Bounds(), p, p.Bounds().Min, draw.Src)
	return out
}

// differs is the share of pixels in which two pictures differ, and a picture of those.
// What only one of them has differs.
func differs(want, got *image.RGBA) (share float64, seen *image.RGBA) {
	box := want.Bounds().Union(got.Bounds())
	seen = image.NewRGBA(box)
	n := 0
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			p := image.Pt(x, y)
			a, b := want.RGBAAt(x, y), got.RGBAAt(x, y)
			if p.In(want.Rect) != p.In(got.Rect) || far(a.R, b.R) || far(a.G, b.G) || far(a.B, b.B) {
				n++
				seen.SetRGBA(x, y, color.RGBA{R: 255, A: 255})
			} else { // pale, so that the red is seen
				seen.SetRGBA(x, y, color.RGBA{R: 170 + a.R/3, G: 170 + a.G/3, B: 170 + a.B/3, A: 255})
			}
		}
	}

	return float64(n) / float64(box.Dx()*box.Dy()), seen
}

func far(a, b uint8) bool { return max(a, b)-min(a, b) > step }
