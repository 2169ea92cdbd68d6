package request

import "context"

// askerKey is the context key under which a request's context holds the context of the sender's
// connection.
type askerKey struct{}

// Asked returns the context for a request. conn is the context of the connection over which the
// request came. The returned context does not end with the connection; see WhileAsked.
func Asked(conn context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(conn), askerKey{}, conn)
}

// WhileAsked returns a context that ends when ctx ends or the sender's connection closes. A method
// uses it for work that is useless when nobody waits for the answer.
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
