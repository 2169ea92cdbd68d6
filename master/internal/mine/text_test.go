package mine

import (
	"encoding/json"
	"strings"

	"saltern/master/value"
)

// text writes a value as JSON in the map's own order.
func text(v any) string {
	m, ok := v.(*value.Map)
	if !ok {
		b, _ := json.Marshal(v)
		return string(b)
	}
	var parts []string
	for k, v := range m.All() {
		parts = append(parts, text(k)+":"+text(v))
	}
	return "{" + strings.Join(parts, ",") + "}"
}
