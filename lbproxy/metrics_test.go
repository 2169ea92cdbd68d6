package lbproxy

import (
	"strings"
	"testing"
)

// Go quotes more than Prometheus reads: \t and \x1b would stand in the label.
func TestMetricsQuoteLabelsAsPrometheusDoes(t *testing.T) {
	var b strings.Builder
	st := Status{Frontends: []FrontendStatus{{Name: "a\tb\"c\\d\u00ad"}}}
	if err := writeMetrics(&b, &st); err != nil {
		t.Fatal(err)
	}
	if want := "saltern_lb_frontend_sessions{frontend=\"a\tb\\\"c\\\\d\u00ad\"} 0\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%q is not in\n%s", want, b.String())
	}
}
