package request

import "context"

// askerKey is the key under which a request's context holds the context of the asker's connection.
type askerKey struct{}

// Asked returns the context of a request that came over conn. It does not end with the connection;
// see WhileAsked.
func Asked(conn context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(conn), askerKey{}, conn)
}

// WhileAsked returns a context that ends with ctx or with the asker's connection, for work that is
// useless when nobody waits for the answer.
func WhileAsked(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	conn, ok := ctx.Value(askerKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(conn, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
