package request

import "context"

// askerKey is the key of the asker's context in that of a request.
type askerKey struct{}

// Asked returns a context for a request: it lasts although the asker may be
// gone, and WhileAsked knows when that is so.
func Asked(conn context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(conn), askerKey{}, conn)
}

// WhileAsked ends ctx with the asker's connection as well: for work that
// nobody needs without an answer.
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
