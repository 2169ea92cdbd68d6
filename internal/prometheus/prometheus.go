// Package prometheus writes metrics in Prometheus' text format, version 0.0.4.
package prometheus

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Page is a page of metrics that is being written. The zero value is empty.
type Page struct{ bytes.Buffer }

// Family begins a metric: the samples that follow have its name.
func (p *Page) Family(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Single writes a metric with one sample and no labels.
func (p *Page) Single(name, kind, help string, value any) {
	p.Family(name, kind, help)
	p.Sample(name, value)
}

// Sample writes a value, which must be a number, with labels: name, value, name, value. The values
// of labels may be untrusted text.
func (p *Page) Sample(name string, value any, labels ...string) {
	p.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		p.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(p, `%s="%s"`, labels[i], escape.Replace(strings.ToValidUTF8(labels[i+1], "?")))
	}
	if len(labels) > 0 {
		p.WriteByte('}')
	}
	if f, ok := value.(float64); ok {
		value = strconv.FormatFloat(f, 'g', -1, 64)
	}
	fmt.Fprintf(p, " %v\n", value)
}

// escape escapes a label's value. The Prometheus format defines escapes for these three characters
// only.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
