package output

import "saltern/master/saltyaml"

// yamlText implements salt/output/yaml_out.py: PyYAML's safe_dump in block style, or in flow style
// when the indent is negative.
func yamlText(v any, o *Options) string {
	style := saltyaml.Style{}
	switch {
	case o.Indent.Set && o.Indent.Width < 0:
		style.Flow = true
	case o.Indent.Set:
		style.Indent = o.Indent.Width
	}
	b, err := saltyaml.EncodeStyle(v, style)
	if err != nil {
		panic(failure(err.Error()))
	}
	return string(b)
}
