package audit

import (
	"context"
	"path/filepath"
)

// LoginField is the field of a clear command to the master with the name of the user who has logged
// in, see [LoginName]. The name is not proven: a sender with root's key can write any text into the
// field.
const LoginField = "__saltern_login"

// MasterDir returns the folder of a master's records below its cachedir.
func MasterDir(cachedir string) string { return filepath.Join(cachedir, "audit") }

type actorKey struct{}

// WithActor returns a context for commands that are run on behalf of an actor.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the actor that WithActor put into ctx, or false if there is none.
func ActorOf(ctx context.Context) (a Actor, ok bool) {
	a, ok = ctx.Value(actorKey{}).(Actor)
	return a, ok
}

// Env returns the variable [ActorEnv] for the actor in ctx, or nil without one.
func Env(ctx context.Context) []string {
	a, ok := ActorOf(ctx)
	if !ok {
		return nil
	}
	return []string{ActorEnv + "=" + string(a.Proof) + ":" + a.User}
}
