package request

import "context"

// askerKey is the key of the asker's context within the context of a request.
type askerKey struct{}

// Asked returns the context of a request. It outlives the asker's connection; WhileAsked ends with
// the connection as well.
func Asked(conn context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(conn), askerKey{}, conn)
}

// WhileAsked returns ctx ended by the asker's connection as well: for work that nobody needs
// without an answer.
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
