package prometheus

import "testing"

func TestPage(t *testing.T) {
	var p Page
	p.Single("a", "gauge", "Help.", 1.5e9)
	p.Family("b", "counter", "More.")
	p.Sample("b", uint64(12345678), "x", "plain", "y", "a\\b\"c\nd\té\x1b\xff")
	want := "# HELP a Help.\n# TYPE a gauge\na 1.5e+09\n# HELP b More.\n# TYPE b counter\n" +
		"b{x=\"plain\",y=\"a\\\\b\\\"c\\nd\té\x1b?\"} 12345678\n"
	if p.String() != want {
		t.Errorf("got\n%q, want\n%q", p.String(), want)
	}
}
