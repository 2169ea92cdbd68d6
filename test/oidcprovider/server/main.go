// Command server is an OpenID provider for tests, made of the example of
// github.com/zitadel/oidc. It writes its address to standard output and ends with its
// standard input.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	client := flag.String("client", "salt", "name of the client")
	secret := flag.String("secret", "secret of salt", "its secret")
	redirects := flag.String("redirects", "", "addresses that the client may lead back to, with commas between")
	flag.Parse()
	if err := run(*client, *secret, strings.Split(*redirects, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(client, secret string, redirects []string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	issuer := "http://" + ln.Addr().String()
	s := &store{storage.NewStorageWithClients(people{},
		map[string]*storage.Client{client: storage.WebClient(client, secret, redirects...)})}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	srv := &http.Server{Handler: exampleop.SetupServer(issuer, s, log, false)}
	fmt.Println(issuer)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close()
	}()

	if err := srv.Serve(ln); err != http.ErrServerClosed {
		return err
	}

	return nil
}

// people are the users; the password of NAME is "secret of NAME".
type people struct{}

func (people) GetUserByID(id string) *storage.User {
	name := strings.TrimPrefix(id, "id of ")
	if groups()[name] == nil {
		return nil
	}
	return &storage.User{
		ID:            "id of " + name,
		Username:      name,
		Password:      "secret of " + name,
		Email:         name + "@example.com",
		EmailVerified: name != "eve",
	}
}

func (p people) GetUserByUsername(name string) *storage.User { return p.GetUserByID(name) }

func (people) ExampleClientID() string { return rand.Text() }

func groups() map[string][]string {
	return map[string][]string{"ann": {"ops", "all hands"}, "bob": {"devs"}, "eve": {}}
}

// store puts what is known of users into ID tokens.
type store struct{ *storage.Storage }

type client struct{ op.Client }

func (client) IDTokenUserinfoClaimsAssertion() bool { return true }

func (s *store) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	return client{c}, err
}

func (s *store) SetUserinfoFromRequest(
	ctx context.Context,
	info *oidc.UserInfo,
	token op.IDTokenRequest,
	scopes []string,
) error {
	if err := s.Storage.SetUserinfoFromRequest(ctx, info, token, scopes); err != nil {
		return err
	}
	info.AppendClaims("groups", groups()[strings.TrimPrefix(token.GetSubject(), "id of ")])
	return nil
}
