package balancer

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/internal/child"
	"saltern/supervisor/settings"
)

// TestMissingAccount: in the image the load balancer is not started as root because its account is missing.
func TestMissingAccount(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.Users.LB = "nor-this-one"
	env := child.Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	programs, err := child.NewPrograms(env, true)
	if err != nil {
		t.Fatal(err)
	}

	b := New(env, programs, func() *settings.Settings { return &cfg }, errors.ErrUnsupported)
	if err := b.prepare(false); err == nil || !strings.Contains(err.Error(), "nor-this-one") {
		t.Errorf("%v", err)
	}
}
