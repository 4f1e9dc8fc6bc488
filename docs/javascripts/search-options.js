// The search leaves out pages with a word that follows "-", so "--effort" would exclude what it
// looks for. The search reads the query without the dashes of options; the field shows them.
const field = document.querySelector("[data-md-component=search-query]");
const { get, set } = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
Object.defineProperty(field, "value", {
  get() {
    return get.call(this).replace(/(^|[\s"])--+(?=\w)/g, "$1");
  },
  set,
});
