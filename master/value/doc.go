// Package value defines Salt's values as the master handles them, independent of their encoding.
// Values are nil, bool, int64, uint64 (only above the range of int64), float64, string, []byte,
// []any, *Map (a map that keeps its order, on which signatures and pillars depend) and Ext. The
// package holds no state. While one goroutine changes a *Map, no other may use it.
package value
