// Package oidcprovider runs an OpenID provider for tests, as a process of the test. The
// program in the folder server is a module of its own, so that what it is made of is no
// matter of the product's.
package oidcprovider

import (
	"bufio"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/test/source"
)

// ClientID and Secret are those of the only client.
const (
	ClientID = "salt"
	Secret   = "secret of salt"
)

// Start runs a provider until the test ends and returns its address. redirects are the
// addresses that the client may lead back to. There are ann, in the groups "ops" and "all
// hands", bob, in devs, and eve, whose address is not verified; the password of NAME is
// "secret of NAME".
func Start(t testing.TB, redirects ...string) (issuer string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "provider")
	build := exec.Command("go", "build", "-C", filepath.Join(source.Root(t), "test/oidcprovider/server"),
		"-o", program, ".")
	build.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly")

	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}

	cmd := exec.Command(program, "-client", ClientID, "-secret", Secret, "-redirects", strings.Join(redirects, ","))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("the provider: %v\n%s", err, said.String())
		}
	})

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the provider says no address: %v", err)
	}

	return strings.TrimSpace(line)
}

// Answer signs somebody in, as a browser that was sent to begin, and returns the address that
// the provider leads it back to, which is not called.
func Answer(t testing.TB, begin, user string) *url.URL {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}

	first, err := url.Parse(begin)
	if err != nil {
		t.Fatal(err)
	}

	c := http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host != first.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}}

	resp, err := c.Get(begin)
	if err != nil {
		t.Fatal(err)
	}

	resp.Body.Close()
	page := resp.Request.URL
	if page.Path != "/login/username" {
		t.Fatalf("the provider leads to %s: %s", page, resp.Status)
	}

	resp, err = c.PostForm(page.String(),
		url.Values{"username": {user}, "password": {"secret of " + user}, "id": {page.Query().Get("authRequestID")}})
	if err != nil {
		t.Fatal(err)
	}

	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("the provider does not lead back: %s, %v", resp.Status, err)
	}

	return back
}
