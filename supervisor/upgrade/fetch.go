package upgrade

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"saltern/image/bundle"
)

// These limits bound, in bytes, what is read from the network: a bundle, and its beginning before
// the first part, with the headers of the archive.
const (
	maxBundle = 8 << 30
	maxHead   = 256 << 10
)

// fetchStalls is how long a server may send nothing.
const fetchStalls = time.Minute

// Fetch returns the content at an address. If plain is set, unencrypted addresses and redirects to
// them are allowed. Reading fails if nothing arrives for fetchStalls.
func Fetch(ctx context.Context, from string, plain bool) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stalled := time.AfterFunc(fetchStalls, func() { cancel(errStalled) })
	body, err := fetch(ctx, from, plain)
	stalled.Stop()
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		cancel(nil)
		return nil, err
	}
	return &fetched{body, ctx, cancel, stalled}, nil
}

var errStalled = fmt.Errorf("upgrade: the address has sent nothing for %s", fetchStalls)

// fetched is the body of an answer. Reading it fails if the server sends nothing for fetchStalls.
type fetched struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stalled *time.Timer
}

// Read implements io.Reader.
func (f *fetched) Read(b []byte) (int, error) {
	f.stalled.Reset(fetchStalls)
	n, err := f.ReadCloser.Read(b)
	f.stalled.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = cmp.Or(context.Cause(f.ctx), err)
	}
	return n, err
}

// Close implements io.Closer.
func (f *fetched) Close() error {
	f.stalled.Stop()
	f.cancel(nil)
	return f.ReadCloser.Close()
}

func fetch(ctx context.Context, from string, plain bool) (io.ReadCloser, error) {
	secret := func(u string) error {
		if strings.HasPrefix(u, "https://") || plain {
			return nil
		}
		return fmt.Errorf("upgrade: %s is not encrypted: whoever sits on the way can offer an old version; take https://, a file, or --allow-http",
			redacted(u))
	}

	if err := secret(from); err != nil {
		return nil, err
	}

	client := http.Client{CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("too many redirections")
		}
		return secret(r.URL.String())
	}}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}

	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("upgrade: %s: %s", req.URL.Redacted(), res.Status)
	}

	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxBundle), res.Body}, nil
}

// redacted returns an address without its password.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	return u.Redacted()
}

// Flavour in an address stands for the kernel flavour of the machine that fetches the bundle.
const Flavour = "{flavour}"

// Offered returns the manifest of the bundle at an address. It reads only the bundle's beginning.
// If the manifest is not signed by one of the keys, or not for the kernel of st, Offered returns an
// error.
func (st *Status) Offered(ctx context.Context, address string, keys []ed25519.PublicKey) (bundle.Manifest, error) {
	return st.offered(ctx, address, keys, false)
}

func (st *Status) offered(
	ctx context.Context,
	address string,
	keys []ed25519.PublicKey,
	plain bool,
) (bundle.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	in, err := Fetch(ctx, strings.ReplaceAll(address, Flavour, st.Flavour), plain)
	if err != nil {
		return bundle.Manifest{}, err
	}
	defer in.Close()

	b, err := bundle.Open(io.LimitReader(in, maxHead), keys)
	if err != nil {
		return bundle.Manifest{}, err
	}
	if b.Manifest.Flavour != st.Flavour {
		return bundle.Manifest{}, fmt.Errorf(
			"upgrade: the version there is for the kernel %s, here runs %s: write %s into the address, or name the other file",
			b.Manifest.Flavour, st.Flavour, Flavour)
	}

	return b.Manifest, nil
}

// Fetch returns the bundle at an address from which [Status.Offered] has read a manifest.
func (st *Status) Fetch(ctx context.Context, address string) (io.ReadCloser, error) {
	return Fetch(ctx, strings.ReplaceAll(address, Flavour, st.Flavour), false)
}

// Newer reports whether a version is newer than the running one.
func (st *Status) Newer(m bundle.Manifest) bool {
	return st.mayFollow(&m) == nil && (m.Version != st.Version || m.Created.After(st.Created))
}
