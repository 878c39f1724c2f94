package protocol

// Settings are what the operator decides about answers. The zero value of each
// field means its default.
type Settings struct {
	CORSOrigin      string // Access-Control-Allow-Origin; default "*"
	CacheVisibility string // "public" or "private"; default "public"
	PublicURL       string // what Location begins with; default: http and the request's Host
}

// Renderer writes the header lines and bodies of answers. It is immutable: any
// number of goroutines may use one.
//
// Its methods append to dst, header lines first and the body directly behind them,
// and return both as parts of that one buffer. A caller that passes an empty
// slice can take fields[:0] as the buffer for the next answer, once it has sent
// this one. Header lines are "Name: value" with CR LF each, without the framing
// (status line, Date, Content-Length, Transfer-Encoding, Connection).
type Renderer struct{ static []byte }

// NewRenderer returns a Renderer for these settings.
func NewRenderer(s Settings) *Renderer { return &Renderer{} }

// Write renders what became of op, whichever kind it is: every success of a PUT,
// POST or DELETE and every refusal of any operation. It allocates nothing for an
// append that succeeded.
func (r *Renderer) Write(dst []byte, op *Operation, res *WriteResult) (status int, fields, body []byte) {
	return 0, dst, nil
}

// Head renders the answer to a HEAD of a stream that exists: 200, or 304.
func (r *Renderer) Head(dst []byte, op *Operation, m *Meta) (status int, fields []byte) {
	return 0, dst
}

// Read renders the head of the answer to a catch-up or long-poll read: 200; 204
// when a long-poll has nothing to say; 304. Only with 200 does a body follow: the
// range, for JSON between OpenArray and CloseArray, or through Lines.
func (r *Renderer) Read(dst []byte, op *Operation, res *ReadResult) (status int, fields []byte) {
	return 0, dst
}

// Events renders the head of an event stream; its status is 200.
func (r *Renderer) Events(dst []byte, incarnation uint64, contentType string) (fields []byte) {
	return dst
}

// Options renders the answer to a preflight; its status is 204.
func (r *Renderer) Options(dst []byte, op *Operation) (fields []byte) { return dst }

// Problem renders p.
func (r *Renderer) Problem(dst []byte, p *Problem) (status int, fields, body []byte) {
	return p.Status, dst, nil
}
