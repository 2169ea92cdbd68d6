// Package prometheus writes metrics in Prometheus' text format, version 0.0.4.
package prometheus

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Page is a text under way; the zero value is empty.
type Page struct{ bytes.Buffer }

// Family begins a metric: the samples that follow have its name.
func (p *Page) Family(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Single is a metric of one sample without labels.
func (p *Page) Single(name, kind, help string, value any) {
	p.Family(name, kind, help)
	p.Sample(name, value)
}

// Sample adds a value, which is a number, with labels: name, value, name, value.
// Values of labels may come from outside.
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

// escape makes a label's value: these three alone have an escape in the format.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
