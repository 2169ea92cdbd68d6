package pyrunner

import (
	"context"

	"saltern/master/internal/pyhost"
	"saltern/master/value"
)

// OpenReturner opens a session that calls functions of returners. services.py describes the
// requests of the session.
func (c *Caller) OpenReturner(ctx context.Context) (*pyhost.Session, error) {
	return c.cfg.Host.Open(ctx, c.request("returner"))
}

// OpenJobReturner opens a session that calls the functions by which a returner keeps jobs.
func (c *Caller) OpenJobReturner(ctx context.Context) (*pyhost.Session, error) {
	return c.cfg.Host.Open(ctx, c.request("jobs"))
}

// OpenEngine starts an engine: the function start of a module, with named arguments. The session
// ends when that function returns.
func (c *Caller) OpenEngine(ctx context.Context, module string, arguments *value.Map) (*pyhost.Session, error) {
	request := c.request("engine")
	request.Set("module", module)
	request.Set("arguments", arguments.Clone())
	if c.cfg.Git != nil {
		options, _ := c.cfg.Git(ctx, "", "")
		request.Set("options", options)
	}
	return c.cfg.Host.Open(ctx, request)
}
