export * from "../../../requirements/typescript/vendor";
