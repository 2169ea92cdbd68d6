package upgrade

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/image/bundle"
)

// What an address offers is read by its beginning, and believed by its signature only.
func TestOffered(t *testing.T) {
	good, pub := version(t, "cloud")
	stranger, _ := version(t, "cloud")
	other, otherKey := version(t, "generic")
	sent := make(chan int, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/saltern-cloud.upgrade":
			_, _ = w.Write(good)
		case "/long":
			n, _ := io.Copy(w, io.LimitReader(io.MultiReader(strings.NewReader(string(good)), zeros{}), 1<<30))
			sent <- int(n)
		case "/stranger":
			_, _ = w.Write(stranger)
		case "/other":
			_, _ = w.Write(other)
		case "/rubbish":
			_, _ = w.Write([]byte(strings.Repeat("x", 4096)))
		case "/endless":
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<30))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()

	st := Status{Flavour: "cloud", Version: "1", Created: time.Unix(1740000000, 0)}
	keys := []ed25519.PublicKey{pub, otherKey}
	for path, want := range map[string]string{
		"/saltern-{flavour}.upgrade": "",
		"/long":                      "",
		"/stranger":                  "signature",
		"/other":                     "for the kernel generic",
		"/rubbish":                   "no bundle",
		"/endless":                   "no bundle",
		"/none":                      "404",
	} {
		m, err := st.offered(t.Context(), srv.URL+path, keys, true)
		if want == "" && (err != nil || m.Version != "2" || !st.Newer(m)) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v %v", path, m, err)
		}
	}

	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes were fetched for the beginning", n)
	}

	if _, err := st.Offered(t.Context(), srv.URL+
		"/saltern-cloud.upgrade", keys); err == nil || !strings.Contains(err.Error(), "not encrypted") {
		t.Errorf("plain: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.offered(ctx, srv.URL+"/none", keys, true); err == nil {
		t.Error("asked after its end")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestNewer(t *testing.T) {
	at := time.Unix(1750000000, 0)
	st := Status{Version: "1.9", Created: at}
	for _, c := range []struct {
		m    bundle.Manifest
		want bool
	}{
		{bundle.Manifest{Version: "1.10", Created: at.Add(time.Hour)}, true},
		{bundle.Manifest{Version: "1.10", Created: at}, true},
		{bundle.Manifest{Version: "1.9", Created: at.Add(time.Hour)}, true}, // built anew, with newer packages
		{bundle.Manifest{Version: "1.9", Created: at}, false},
		{bundle.Manifest{Version: "1.8", Created: at}, false},
		{bundle.Manifest{Version: "2", Created: at.Add(-time.Hour)}, false},
	} {
		if got := st.Newer(c.m); got != c.want {
			t.Errorf("%s of %s: %v", c.m.Version, c.m.Created, got)
		}
	}
}

// silent is the body of an answer that never goes on.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (silent) Close() error               { return nil }

// An address that has begun to answer and is silent then does not hold up an upgrade.
func TestFetchStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		began := time.Now()
		f := &fetched{silent{ctx}, ctx, cancel, time.AfterFunc(time.Hour, func() { cancel(errStalled) })}
		defer f.Close()
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, errStalled) || time.Since(began) != fetchStalls {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
