package eauth

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/logged"
)

// TestUnansweredIsNoWrongPassword: the caller gets the same answer when the password is wrong and when the
// system of his log-in hangs; log and error tell the two apart, and name the cause.
func TestUnansweredIsNoWrongPassword(t *testing.T) {
	a := ungranted(t, nil)
	a.slowestCheck = 0
	var lines logged.Buffer
	a.cfg.Log = slog.New(slog.NewTextHandler(&lines, nil))
	a.cfg.Backends["dir"] = func(_ context.Context, _, password string) (Verdict, error) {
		if password == "wrong" {
			return Verdict{}, nil
		}
		return Verdict{}, errors.New("the directory hangs")
	}

	for _, password := range []string{"wrong", "other"} {
		lines.Reset()
		creds := value.NewMap("eauth", "dir", "username", "ann", "password", password)

		_, refusal := a.Check(t.Context(), value.NewMap(), creds.Clone(), near)
		made, err := a.MakeToken(t.Context(), creds.Clone(), near)

		if refusal == nil || refusal.Error() != `Authentication failure of type "eauth" occurred for user ann.` || made != "" {
			t.Errorf("%s: answers %v, %v", password, refusal, made)
		}

		for _, got := range []error{refusal, err} {
			cause, unanswered := errors.AsType[*Unanswered](got)
			if unanswered != (password == "other") ||
				unanswered && !strings.Contains(cause.Error(),
					"external_auth dir does not answer: the directory hangs") {
				t.Errorf("%s: %v", password, got)
			}
		}

		named := strings.Count(lines.String(), `user=ann peer=192.0.2.1 error="the directory hangs"`)
		if password == "other" != (named == 2) {
			t.Errorf("%s: logged %s", password, lines.String())
		}
	}
}

// TestPAMHelperThatHangs: the error says that the helper has not answered, and for how long.
func TestPAMHelperThatHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ask := PAM(socket, nil, slog.New(slog.DiscardHandler))

	v, err := ask(ctx, "ann", "right")

	if err == nil || v.OK || !strings.Contains(err.Error(), "it has not answered in ") ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v %v", v, err)
	}
}
