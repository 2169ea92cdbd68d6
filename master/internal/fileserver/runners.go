package fileserver

import (
	"context"
	"errors"

	"saltern/master/value"
)

// Runners implements the runners fileserver.* on a Server.
type Runners struct {
	Server *Server
	// Newest updates this node's copy of the files. The function All updates the copies on all
	// nodes.
	Newest func(context.Context)
	All    func(context.Context) error
}

// Call answers a file request of the master itself.
func (r Runners) Call(ctx context.Context, cmd string, load *value.Map) (any, error) {
	r.Newest(ctx)
	return r.Server.Call(ctx, cmd, "", load)
}

// Backends returns the names of the backends that names selects; nil selects the configured
// backends.
func (r Runners) Backends(names any) []string { return r.Server.Backends(names) }

// Envs lists the environments of one backend.
func (r Runners) Envs(_ context.Context, backend string) ([]string, error) {
	return r.Server.Envs(backend), nil
}

// Update refreshes backends on all nodes.
func (r Runners) Update(ctx context.Context, backends []string) error {
	copied := r.All(ctx)
	_, err := r.Server.Update(ctx, backendNames(backends))
	return errors.Join(copied, err)
}

// ClearCache drops the caches of one backend, and reports whether that backend exists.
func (r Runners) ClearCache(_ context.Context, backend string) (bool, error) {
	return len(r.Server.ClearCache(backend)) > 0, nil
}

// ClearLists drops cached file lists.
func (r Runners) ClearLists(_ context.Context, backends, envs []string) (map[string][]string, error) {
	return r.Server.ClearFileListCache(envs, backendNames(backends)), nil
}

// backendNames returns a list of backend names in the form that a request has. For nil it returns
// nil.
func backendNames(names []string) any {
	if names == nil {
		return nil
	}
	return value.List(names)
}
