package lbproxy

import (
	"io"
	"maps"
	"slices"

	"saltern/internal/prometheus"
)

// writeMetrics prints a status in Prometheus' text format, version 0.0.4.
func writeMetrics(w io.Writer, st *Status) error {
	var page prometheus.Page
	addProxyMetrics(&page, st)
	addFrontendMetrics(&page, st)
	addBackendMetrics(&page, st)
	_, err := page.WriteTo(w)
	return err
}

func addProxyMetrics(page *prometheus.Page, st *Status) {
	one := page.Single
	one("saltern_lb_loops", "gauge", "Event loops.", st.Loops)
	one("saltern_lb_sessions", "gauge", "Sessions now.", st.Sessions)
	one("saltern_lb_descriptors_budget", "gauge", "Descriptors that sessions may use.", st.FDs.Budget)
	one("saltern_lb_descriptors_free", "gauge", "Descriptors left for sessions.", st.FDs.Free)
	one("saltern_lb_pending_bytes", "gauge", "Bytes held for slow peers.", st.Pending)
	one("saltern_lb_log_lines_dropped_total", "counter", "Session log lines dropped.", st.LogDrops)
	one("saltern_lb_known_sources", "gauge", "Sources with minions that a master has accepted.", st.Known)
	one("saltern_lb_hedged_connects_total", "counter", "Second dials beside a silent one.", st.Hedges)
	one("saltern_lb_rebalanced_total", "counter", "Sessions cut or moved to balance.", st.Moved)
	one("saltern_lb_sessions_moved_total", "counter",
		"Sessions given to another backend without closing the client's connection.", st.Given)
	one("saltern_lb_kept_bytes", "gauge", "Bytes kept of requests that wait for their answers.", st.Kept)
	one("saltern_lb_requests_not_kept_total", "counter",
		"Requests too large to be kept for another backend.", st.Unkept)
}

func addFrontendMetrics(page *prometheus.Page, st *Status) {
	frontends := func(name, kind, help string, v func(*FrontendStatus) any) {
		page.Family(name, kind, help)
		for i := range st.Frontends {
			page.Sample(name, v(&st.Frontends[i]), "frontend", st.Frontends[i].Name)
		}
	}

	frontends("saltern_lb_frontend_sessions", "gauge", "Sessions now.",
		func(f *FrontendStatus) any { return f.Sessions })
	frontends("saltern_lb_frontend_accepted_total", "counter", "Connections accepted.",
		func(f *FrontendStatus) any { return f.Accepted })
	frontends("saltern_lb_frontend_serving", "gauge", "1 when a backend is up.",
		func(f *FrontendStatus) any { return gaugeOf(f.Serving) })
	frontends("saltern_lb_frontend_limited_sources", "gauge",
		"Sources refused within the last five minutes.",
		func(f *FrontendStatus) any { return f.LimitedSources })
	reasons := func(name, help string, v func(*FrontendStatus) map[string]uint64) {
		page.Family(name, "counter", help)
		for i := range st.Frontends {
			m := v(&st.Frontends[i])
			for _, k := range slices.Sorted(maps.Keys(m)) {
				page.Sample(name, m[k], "frontend", st.Frontends[i].Name, "reason", k)
			}
		}
	}

	reasons("saltern_lb_frontend_refused_total", "Connections refused.",
		func(f *FrontendStatus) map[string]uint64 { return f.Refused })
	reasons("saltern_lb_frontend_ended_total", "Sessions ended, by reason.",
		func(f *FrontendStatus) map[string]uint64 { return f.Ended })
}

func addBackendMetrics(page *prometheus.Page, st *Status) {
	ports := func(name, kind, help string, v func(*BackendStatus, *PortStatus) any) {
		page.Family(name, kind, help)
		for i := range st.Backends {
			for j := range st.Backends[i].Ports {
				p := &st.Backends[i].Ports[j]
				page.Sample(name, v(&st.Backends[i], p), "backend", st.Backends[i].Name, "frontend", p.Frontend)
			}
		}
	}

	ports("saltern_lb_backend_up", "gauge", "1 when up and open to new sessions.",
		func(bs *BackendStatus, p *PortStatus) any {
			return gaugeOf(p.State == Up && !bs.Drain && !bs.Maint && !bs.Removing)
		})

	ports("saltern_lb_backend_state", "gauge", "0 unknown, 1 up, 2 joining, 3 down, 4 unwell.",
		func(_ *BackendStatus, p *PortStatus) any { return int(p.State) })
	ports("saltern_lb_backend_weight", "gauge", "Configured weight.",
		func(bs *BackendStatus, _ *PortStatus) any { return bs.Weight })
	ports("saltern_lb_backend_sessions", "gauge", "Sessions now.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Sessions })
	ports("saltern_lb_backend_sessions_total", "counter", "Sessions connected.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Total })
	ports("saltern_lb_backend_bytes_up_total", "counter", "Bytes from clients, of ended sessions.",
		func(_ *BackendStatus, p *PortStatus) any { return p.BytesUp })
	ports("saltern_lb_backend_bytes_down_total", "counter", "Bytes to clients, of ended sessions.",
		func(_ *BackendStatus, p *PortStatus) any { return p.BytesDown })
	ports("saltern_lb_backend_connect_errors_total", "counter", "Dials that failed.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Refusals })
	ports("saltern_lb_backend_resets_total", "counter", "Sessions broken off by the backend.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Resets })
	ports("saltern_lb_backend_cuts_total", "counter", "Sessions cut by the load balancer.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Cuts })
	ports("saltern_lb_backend_checks_total", "counter", "Health checks.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Checks })
	ports("saltern_lb_backend_checks_failed_total", "counter", "Health checks that failed.",
		func(_ *BackendStatus, p *PortStatus) any { return p.Failed })
	ports("saltern_lb_backend_check_seconds", "gauge", "Smoothed time of a check.",
		func(_ *BackendStatus, p *PortStatus) any { return p.CheckTime.Seconds() })
}

func gaugeOf(b bool) int {
	if b {
		return 1
	}
	return 0
}
