package audit

import (
	"context"
	"net/netip"
	"path/filepath"
)

// Fields of a clear command to the master that only say more about the caller. Who
// holds root's key may say anything in the first; the second counts from this host.
const (
	LoginField = "__saltern_login" // who has logged in, see [LoginName]
	FromField  = "__saltern_from"  // for which address salt-api asks
)

// MasterDir is the folder of a master's records, by its cachedir.
func MasterDir(cachedir string) string { return filepath.Join(cachedir, "audit") }

type fromKey struct{}

// WithFrom says for which address a command is given.
func WithFrom(ctx context.Context, from netip.Addr) context.Context {
	return context.WithValue(ctx, fromKey{}, from)
}

// FromOf is the address of WithFrom; "" without.
func FromOf(ctx context.Context) string {
	if a, ok := ctx.Value(fromKey{}).(netip.Addr); ok && a.IsValid() {
		return a.String()
	}
	return ""
}

type actorKey struct{}

// WithActor says for whom a command is given.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// Env is the variable [ActorEnv] for the actor of WithActor; nil without.
func Env(ctx context.Context) []string {
	a, ok := ctx.Value(actorKey{}).(Actor)
	if !ok {
		return nil
	}
	return []string{ActorEnv + "=" + string(a.Proof) + ":" + a.User}
}
