// Numbers with their nouns, and errors as sentences.

// The pages are in English, and their templates write 1,234.5: no number of a page may be read otherwise.
export const number = new Intl.NumberFormat("en");

// "1 delivery", "2,000 deliveries".
export const counted = (count, one, more) => `${number.format(count)} ${count === 1 ? one : more}`;

// An error without its leading word, which is for programs.
export function sentence(error) {
  const message = error?.replace(/^.*?: /, "") ?? "";
  return message.slice(0, 1).toUpperCase() + message.slice(1);
}
