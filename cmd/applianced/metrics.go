package main

import (
	"context"
	"log/slog"

	"saltern/lbproxy"
	"saltern/supervisor/metrics"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// serveMetrics starts to serve metrics, until ctx ends or stop is called. It reads the address only
// once: a new address takes effect after a restart.
func (f *flags) serveMetrics(ctx context.Context, st func() status.Document, log *slog.Logger) (stop func()) {
	listen := settings.Default(hostname()).Metrics.Listen
	if s, err := settings.Load(f.config, hostname()); err == nil {
		listen = s.Metrics.Listen
	}

	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if listen != "" {
			metrics.Serve(ctx, listen, metrics.Source{Status: st, Balancer: f.balancerMetrics}, log)
		}
	}()

	return func() {
		cancel()
		<-ended
	}
}

func (f *flags) balancerMetrics(ctx context.Context) ([]byte, error) {
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return nil, err
	}
	return lbproxy.NewClient(s.LBSocket()).Metrics(ctx)
}
